//! The program `tollgate`.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run(&cli::command().get_matches()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
