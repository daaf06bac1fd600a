//! What the live view shows, as data, and how it is drawn: a function of that data,
//! the place that somebody scrolled to, and the size of the screen.

use std::rc::Rc;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use crate::commands::tree::TreeLine;
use crate::style::{self, TextTone};

/// So many columns have room for the tree and the agent side by side.
const WIDE: u16 = 100;

/// Everything there is to show. Texts are harmless already.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WatchModel {
    /// The goal's title.
    pub(crate) title: String,
    /// The state in a word, with its tone.
    pub(crate) state: (&'static str, Option<TextTone>),
    /// The run and its branch; empty before the first start.
    pub(crate) branch: String,
    /// Leaves passed of all.
    pub(crate) progress: Option<(usize, usize)>,
    /// The iteration under way or the last one, and how many there may be.
    pub(crate) iteration: (u32, u32),
    /// What the runner is doing, in words; empty if none is at work.
    pub(crate) phase: String,
    /// Seconds of the iteration so far, and how many it may take.
    pub(crate) elapsed: Option<(u64, u64)>,
    /// Milliseconds of all recorded iterations.
    pub(crate) spent_ms: u64,
    /// Tokens of the run so far, and how many there may be (0: no limit).
    pub(crate) tokens: Option<(u64, u64)>,
    /// USD of the run so far, and how many there may be (0: no limit).
    pub(crate) cost: Option<(f64, f64)>,
    /// What a person should know now, such as a wait or what to type.
    pub(crate) notice: Option<(TextTone, String)>,
    /// The tree; shared, for it may be large.
    pub(crate) tree: Rc<Vec<TreeLine>>,
    /// The node that is worked on, or comes next.
    pub(crate) current: Option<usize>,
    /// The command that the agent runs now.
    pub(crate) doing: Option<String>,
    /// What the agent said and did last, oldest first.
    pub(crate) messages: Vec<(TextTone, String)>,
    /// The last outcomes, newest first.
    pub(crate) outcomes: Vec<(TextTone, String)>,
}

/// A key that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchKey {
    Down,
    Up,
    PageDown,
    PageUp,
    Top,
    Bottom,
    Current,
}

/// Where somebody looks.
#[derive(Clone, Debug)]
pub(crate) struct WatchView {
    /// Whether colours are wanted.
    colours: bool,
    /// The line that is marked; `None` goes with the current leaf.
    cursor: Option<usize>,
    /// The first line of the tree that is shown.
    top: usize,
    /// How many lines of it are.
    rows: usize,
}

impl WatchView {
    pub(crate) fn new(colours: bool) -> Self {
        WatchView {
            colours,
            cursor: None,
            top: 0,
            rows: 1,
        }
    }

    /// Moves.
    pub(crate) fn press(&mut self, key: WatchKey, model: &WatchModel) {
        let last = model.tree.len().saturating_sub(1);
        let here = self.position(model);
        self.cursor = match key {
            WatchKey::Down => Some(here + 1),
            WatchKey::Up => Some(here.saturating_sub(1)),
            WatchKey::PageDown => Some(here + self.rows),
            WatchKey::PageUp => Some(here.saturating_sub(self.rows)),
            WatchKey::Top => Some(0),
            WatchKey::Bottom => Some(last),
            WatchKey::Current => None,
        }
        .map(|line| line.min(last));
    }

    fn position(&self, model: &WatchModel) -> usize {
        let last = model.tree.len().saturating_sub(1);
        self.cursor.or(model.current).unwrap_or(0).min(last)
    }

    /// Scrolls so that the marked line is among so many rows.
    fn scroll(&mut self, model: &WatchModel, rows: usize) -> usize {
        self.rows = rows.max(1);
        let here = self.position(model);
        let most = model.tree.len().saturating_sub(self.rows);
        // With some lines around it where there is room.
        let margin = (self.rows / 4).min(3);
        if here < self.top + margin {
            self.top = here.saturating_sub(margin);
        } else if here + margin >= self.top + self.rows {
            self.top = here + margin + 1 - self.rows;
        }
        self.top = self.top.min(most);
        here
    }

    fn style(&self, tone: TextTone) -> Style {
        let plain = Style::new();
        let painted = |colour| {
            if self.colours {
                plain.fg(colour)
            } else {
                plain
            }
        };
        match tone {
            TextTone::Good => painted(Color::Green),
            TextTone::Bad => painted(Color::Red),
            TextTone::Busy => painted(Color::Yellow),
            TextTone::Dim => plain.add_modifier(Modifier::DIM),
            TextTone::Strong => plain.add_modifier(Modifier::BOLD),
            TextTone::Plain => plain,
        }
    }
}

/// Draws everything.
pub(crate) fn draw(model: &WatchModel, view: &mut WatchView, frame: &mut Frame<'_>) {
    let notice = u16::from(model.notice.is_some());
    let [head, said, body, keys] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(notice),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(header(model, view, head.width)), head);
    if let Some((tone, text)) = &model.notice {
        let line = Line::styled(text.as_str(), view.style(*tone));
        frame.render_widget(Paragraph::new(line), said);
    }
    let (tree, agent, outcomes) = places(body, model.outcomes.len());
    draw_tree(model, view, frame, tree);
    draw_agent(model, view, frame, agent);
    let lines = model.outcomes.iter();
    let lines = lines.map(|(tone, text)| Line::styled(text.as_str(), view.style(*tone)));
    frame.render_widget(
        Paragraph::new(lines.collect::<Vec<_>>()).block(heading("last outcomes", view)),
        outcomes,
    );
    let help = "q leave  j/k move  g/G ends  c current leaf";
    frame.render_widget(
        Paragraph::new(Line::styled(help, view.style(TextTone::Dim))),
        keys,
    );
}

/// Where tree, agent and outcomes go.
fn places(body: Rect, outcomes: usize) -> (Rect, Rect, Rect) {
    // With a line for the heading.
    let wanted = u16::try_from(outcomes.clamp(1, 8)).unwrap_or(1) + 1;
    if body.width >= WIDE {
        let [tree, gap, right] = Layout::horizontal([
            Constraint::Fill(1),
            Constraint::Length(1),
            Constraint::Fill(1),
        ])
        .areas(body);
        let _ = gap;
        let [agent, outcomes] =
            Layout::vertical([Constraint::Min(3), Constraint::Length(wanted)]).areas(right);
        return (tree, agent, outcomes);
    }
    // The tree gets about half of it; of the rest the agent gets more.
    let rest = body.height / 2;
    let outcomes = wanted.min((rest / 2).max(2));
    let agent = rest.saturating_sub(outcomes).max(2);
    let [tree, agent, outcomes] = Layout::vertical([
        Constraint::Min(1),
        Constraint::Length(agent),
        Constraint::Length(outcomes),
    ])
    .areas(body);
    (tree, agent, outcomes)
}

fn heading(title: &str, view: &WatchView) -> Block<'static> {
    Block::new()
        .borders(Borders::TOP)
        .border_style(view.style(TextTone::Dim))
        .title(format!("{title} "))
}

fn header<'a>(model: &'a WatchModel, view: &WatchView, width: u16) -> Vec<Line<'a>> {
    let width = usize::from(width);
    let title = Line::styled(
        runner_core::text::cut_chars(&model.title, width),
        view.style(TextTone::Strong),
    );
    let (word, tone) = model.state;
    let mut doing = Vec::new();
    if !model.phase.is_empty() {
        doing.push(model.phase.clone());
    }
    match model.elapsed {
        Some((secs, budget)) => doing.push(format!("{} of {}", clock(secs), clock(budget))),
        None if model.spent_ms > 0 => {
            doing.push(format!("{} in all", style::duration(model.spent_ms)));
        }
        None => {}
    }
    let style = view.style(tone.unwrap_or(TextTone::Plain));
    let state = Line::from(vec![
        Span::styled(word, style.add_modifier(Modifier::BOLD)),
        Span::raw(format!(
            "  {}",
            fitting(&doing, width.saturating_sub(word.len() + 2))
        )),
    ]);
    let mut progress = Vec::new();
    if let Some((passed, leaves)) = model.progress {
        let cells = 10;
        let filled = (passed * cells).checked_div(leaves).unwrap_or(0);
        progress.push(Span::styled("█".repeat(filled), view.style(TextTone::Good)));
        progress.push(Span::raw("░".repeat(cells - filled)));
        progress.push(Span::raw(format!(" {passed} of {leaves} leaves  ")));
    }
    progress.push(Span::styled(
        model.branch.as_str(),
        view.style(TextTone::Dim),
    ));
    vec![
        title,
        state,
        Line::from(progress),
        Line::from(fitting(&counts(model), width)),
    ]
}

/// Iterations, tokens and cost, each with its limit where it has one.
fn counts(model: &WatchModel) -> Vec<String> {
    let (iter, most) = model.iteration;
    let mut counts = vec![format!("iteration {iter} of {most}")];
    if let Some((tokens, most)) = model.tokens {
        counts.push(match most {
            0 => format!("{} tokens", short(tokens)),
            most => format!("{} of {} tokens", short(tokens), short(most)),
        });
    }
    if let Some((cost, most)) = model.cost {
        counts.push(if most > 0.0 {
            format!("${cost:.2} of ${most:.2}")
        } else {
            format!("${cost:.2}")
        });
    }
    counts
}

/// As many of the parts as have room, whole; the first one always.
fn fitting(parts: &[String], width: usize) -> String {
    let mut line = String::new();
    for part in parts {
        if line.is_empty() {
            line.push_str(part);
        } else if line.chars().count() + 3 + part.chars().count() <= width {
            line.push_str(" · ");
            line.push_str(part);
        }
    }
    line
}

fn draw_tree(model: &WatchModel, view: &mut WatchView, frame: &mut Frame<'_>, area: Rect) {
    let rows = usize::from(area.height.saturating_sub(1));
    let here = view.scroll(model, rows);
    let shown = model
        .tree
        .iter()
        .enumerate()
        .skip(view.top)
        .take(rows)
        .map(|(index, line)| {
            let is_current = model.current == Some(index);
            let id_tone = if is_current {
                TextTone::Strong
            } else {
                TextTone::Plain
            };
            let mark = if is_current && line.tone == TextTone::Dim {
                ("▶", TextTone::Busy)
            } else {
                (line.mark, line.tone)
            };
            let mut spans = vec![
                Span::styled(line.lead.as_str(), view.style(TextTone::Dim)),
                Span::styled(mark.0, view.style(mark.1)),
                Span::raw(" "),
                Span::styled(line.id.as_str(), view.style(id_tone)),
                Span::raw("  "),
                Span::raw(line.title.as_str()),
            ];
            if !line.more.is_empty() {
                spans.push(Span::styled(
                    format!("  {}", line.more),
                    view.style(line.more_tone),
                ));
            }
            let drawn = Line::from(spans);
            if index == here && view.cursor.is_some() {
                drawn.style(Style::new().add_modifier(Modifier::REVERSED))
            } else {
                drawn
            }
        })
        .collect::<Vec<_>>();
    let title = if model.tree.len() > rows && rows > 0 {
        let end = (view.top + rows).min(model.tree.len());
        format!("tree {}-{end} of {}", view.top + 1, model.tree.len())
    } else {
        "tree".to_owned()
    };
    let block = heading(&title, view);
    frame.render_widget(Paragraph::new(shown).block(block), area);
}

fn draw_agent(model: &WatchModel, view: &WatchView, frame: &mut Frame<'_>, area: Rect) {
    let rows = usize::from(area.height.saturating_sub(1));
    let doing = model.doing.as_ref().map(|command| {
        Line::styled(
            format!("$ {command}"),
            view.style(TextTone::Busy).add_modifier(Modifier::BOLD),
        )
    });
    // The newest are at the end; the command that runs is always seen.
    let room = rows.saturating_sub(usize::from(doing.is_some()));
    let from = model.messages.len().saturating_sub(room);
    let mut lines: Vec<Line<'_>> = model.messages[from..]
        .iter()
        .map(|(tone, text)| Line::styled(text.as_str(), view.style(*tone)))
        .collect();
    lines.extend(doing);
    if lines.is_empty() {
        let words = if model.elapsed.is_some() {
            "nothing yet"
        } else {
            "no session is under way"
        };
        lines.push(Line::styled(words, view.style(TextTone::Dim)));
    }
    frame.render_widget(Paragraph::new(lines).block(heading("agent", view)), area);
}

/// `1:05`, `1:02:05`.
fn clock(secs: u64) -> String {
    match secs / 3600 {
        0 => format!("{}:{:02}", secs / 60, secs % 60),
        hours => format!("{hours}:{:02}:{:02}", secs / 60 % 60, secs % 60),
    }
}

/// `950`, `12.3k`, `4.5M`.
fn short(count: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", count / unit, count % unit * 10 / unit);
    match count {
        0..=999 => count.to_string(),
        1_000..=999_999 => format!("{}k", tenths(1_000)),
        _ => format!("{}M", tenths(1_000_000)),
    }
}
