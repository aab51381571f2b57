//! What the operating system knows about this process.

use std::fs;

/// Linux counts time for `/proc` in hundredths of a second, whatever it does itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// What is not there on this system is missing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) start_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) open_files: Option<usize>,
    pub(super) most_files: Option<u64>,
}

impl Process {
    pub(super) fn read() -> Process {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Process {
            cpu_seconds: cpu_seconds(&stat),
            start_seconds: start_seconds(&stat),
            resident_bytes: kibibytes(&status, "VmRSS:"),
            virtual_bytes: kibibytes(&status, "VmSize:"),
            open_files: fs::read_dir("/proc/self/fd").ok().map(Iterator::count),
            most_files: most_files(),
        }
    }
}

/// A field of `/proc/self/stat` by its number in proc(5). The name of the program, number 2, may have blanks in it.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    Some((field(stat, 14)? + field(stat, 15)?) / TICKS_PER_SECOND)
}

fn start_seconds(stat: &str) -> Option<f64> {
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(boot + field(stat, 22)? / TICKS_PER_SECOND)
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

fn most_files() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
