//! Programs from the Python package index, installed once into the build's folder for tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A virtual environment with these packages.
pub(crate) fn with(packages: &[&str], name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let installed = folder.join("installed");
    if std::fs::read_to_string(&installed).is_ok_and(|before| before == packages.join("\n")) {
        return folder;
    }
    let _ = std::fs::remove_dir_all(&folder);
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder), "install the packages `python3` and `python3-venv`");
    let pip = folder.join("bin/pip");
    let help = format!("this test needs the Python packages {}", packages.join(", "));
    run(Command::new(pip).args(["install", "--quiet", "--disable-pip-version-check"]).args(packages), &help);
    std::fs::write(installed, packages.join("\n")).unwrap();
    folder
}

fn run(command: &mut Command, help: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {help}"));
    assert!(output.status.success(), "{command:?}: {}; {help}", String::from_utf8_lossy(&output.stderr));
}
