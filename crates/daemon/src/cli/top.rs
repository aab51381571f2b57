//! `tollgate top`: what rules do, live.

mod frame;
mod history;

use super::connection::{Connection, server, token};
use super::{Failure, print};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use crossterm::{cursor, event, execute, queue, style, terminal};
use frame::frame;
use history::{History, read, read_store};
use std::io::{Write, stdout};
use std::time::{Duration, Instant};

/// What there is to say.
pub(crate) fn command() -> Command {
    Command::new("top")
        .about("Watch what the rules of a daemon do, live; q ends it")
        .arg(server())
        .arg(token())
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("SECONDS")
                .default_value("1")
                .value_parser(value_parser!(u64).range(1..=3600))
                .help("How often to look"),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Look twice, print what happened between, and end"),
        )
}

/// Watches until somebody presses q.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let mut connection = Connection::open(matches)?;
    let interval = Duration::from_secs(matches.get_one::<u64>("interval").copied().unwrap_or(1));
    let mut history = History::default();
    look(&mut connection, &mut history)?;
    if matches.get_flag("once") {
        #[expect(clippy::disallowed_methods, reason = "this is the outermost shell, and there is nothing else to do")]
        std::thread::sleep(interval);
        look(&mut connection, &mut history)?;
        return print(&format!("{}\n", frame(&history, 120, 40).join("\n")));
    }
    let _screen = Screen::open()?;
    loop {
        draw(&history)?;
        if wants_to_end(interval)? {
            return Ok(());
        }
        look(&mut connection, &mut history)?;
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the outermost shell, and rates are by its clock")]
fn look(connection: &mut Connection, history: &mut History) -> Result<(), Failure> {
    let rules =
        read(&connection.ask(&["STATS"])?).ok_or("this daemon answers in a way that this program does not know")?;
    history.add(Instant::now(), rules);
    history.store = read_store(&connection.ask(&["INFO"])?.to_string());
    Ok(())
}

fn draw(history: &History) -> Result<(), Failure> {
    let (width, height) = terminal::size()?;
    let mut out = stdout();
    queue!(out, cursor::MoveTo(0, 0))?;
    for line in frame(history, width.into(), height.into()) {
        queue!(out, style::Print(line), terminal::Clear(terminal::ClearType::UntilNewLine), cursor::MoveToNextLine(1))?;
    }
    queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
    Ok(out.flush()?)
}

/// Waits for a key until it is time to look again.
#[expect(clippy::disallowed_methods, reason = "this is the outermost shell")]
fn wants_to_end(interval: Duration) -> Result<bool, Failure> {
    let end = Instant::now() + interval;
    while event::poll(end.saturating_duration_since(Instant::now()))? {
        if let Event::Key(KeyEvent { code, modifiers, .. }) = event::read()? {
            let is_interrupt = code == KeyCode::Char('c') && modifiers.contains(KeyModifiers::CONTROL);
            if is_interrupt || matches!(code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// A screen of our own, given back however this ends.
struct Screen;

impl Screen {
    fn open() -> Result<Screen, Failure> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
