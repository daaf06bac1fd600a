//! The live view in the terminal: takes the screen over, shows the run as it goes,
//! and gives the screen back however it ends.

mod collect;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{self, Stdout, stdout};
use std::panic;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{self, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use runner::{Project, Result};
use runner_exec::Cancel;

use crate::style::TextPaint;
use collect::WatchCollector;
use screen::{WatchKey, WatchView};

/// How often to look for something new.
const LOOK: Duration = Duration::from_millis(250);

/// How it was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchExit {
    /// By its own key.
    ByKey,
    /// By Ctrl-C or a signal.
    Interrupted,
}

/// Shows the run until somebody leaves.
pub(crate) fn watch(project: &Project, cancel: &Cancel, paint: TextPaint) -> Result<WatchExit> {
    let mut collector = WatchCollector::new(project);
    let mut model = collector.collect();
    let mut view = WatchView::new(paint.on);
    let _restore = TakenOver::begin()?;
    let mut terminal: Terminal<CrosstermBackend<Stdout>> =
        Terminal::new(CrosstermBackend::new(stdout()))?;
    let mut look_at = Instant::now() + LOOK;
    let mut is_new = true;
    loop {
        if is_new {
            terminal.draw(|frame| screen::draw(&model, &mut view, frame))?;
            is_new = false;
        }
        if cancel.is_cancelled() {
            return Ok(WatchExit::Interrupted);
        }
        if event::poll(look_at.saturating_duration_since(Instant::now()))? {
            // Also after a resize: drawing asks for the size each time.
            is_new = true;
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match meaning(key) {
                    Meaning::Leave(left) => return Ok(left),
                    Meaning::Move(key) => view.press(key, &model),
                    Meaning::Nothing => {}
                },
                _ => {}
            }
        }
        if Instant::now() >= look_at {
            let now = collector.collect();
            is_new |= now != model;
            model = now;
            look_at = Instant::now() + LOOK;
        }
    }
}

enum Meaning {
    Leave(WatchExit),
    Move(WatchKey),
    Nothing,
}

fn meaning(key: KeyEvent) -> Meaning {
    let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if ctrl => Meaning::Leave(WatchExit::Interrupted),
        KeyCode::Char('q') | KeyCode::Esc => Meaning::Leave(WatchExit::ByKey),
        KeyCode::Char('j') | KeyCode::Down => Meaning::Move(WatchKey::Down),
        KeyCode::Char('k') | KeyCode::Up => Meaning::Move(WatchKey::Up),
        KeyCode::PageDown | KeyCode::Char(' ') => Meaning::Move(WatchKey::PageDown),
        KeyCode::PageUp => Meaning::Move(WatchKey::PageUp),
        KeyCode::Char('g') | KeyCode::Home => Meaning::Move(WatchKey::Top),
        KeyCode::Char('G') | KeyCode::End => Meaning::Move(WatchKey::Bottom),
        KeyCode::Char('c') => Meaning::Move(WatchKey::Current),
        _ => Meaning::Nothing,
    }
}

/// The terminal while it is ours; given back when this is dropped, or at a panic.
struct TakenOver;

impl TakenOver {
    fn begin() -> io::Result<Self> {
        // Release builds abort at a panic: nothing is dropped then, but hooks run.
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
        terminal::enable_raw_mode()?;
        let taken = TakenOver;
        execute!(stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(taken)
    }
}

impl Drop for TakenOver {
    fn drop(&mut self) {
        give_back();
    }
}

/// Every part is tried, whatever became of the others.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}
