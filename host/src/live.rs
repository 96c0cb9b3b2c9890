//! The live table of `run` on a terminal: the objects, their phases, what happened last and what comes next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polity_core::controller::{KeyView, WaitReason};
use polity_core::key::Key;
use polity_core::time::{Boot, millis};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::display::duration;
use crate::engine::{Handle, View};
use crate::overview::{Overview, Standing, State};
use crate::screen::Live;
use crate::table::Table;

/// How often the table is drawn again, at most.
const EVERY: Duration = Duration::from_millis(250);
/// The longer wait of a large host, for each object: a view of all objects takes time on the event loop.
const EVERY_FOR_EACH: Duration = Duration::from_micros(100);
/// The lines of the terminal that the table leaves free: the command above it, and the cursor below.
const FREE: usize = 2;
/// The characters of the bar.
const BAR: usize = 20;

/// The live table of a running host.
pub(crate) struct LiveTable {
    stop: oneshot::Sender<()>,
    drawn: JoinHandle<()>,
}

impl LiveTable {
    /// Shows the table. Its times count from `started`.
    pub(crate) fn show(handle: Handle, clock: Arc<Clock>, overview: Arc<Overview>, started: Boot) -> Self {
        let (stop, stopped) = oneshot::channel();
        let drawn = tokio::spawn(draw(handle, clock, overview, started, stopped));
        LiveTable { stop, drawn }
    }

    /// Draws the table for the last time. It stays on the screen, and what is printed from now on follows it.
    pub(crate) async fn end(self) {
        let _ = self.stop.send(());
        let _ = self.drawn.await;
    }
}

async fn draw(
    handle: Handle,
    clock: Arc<Clock>,
    overview: Arc<Overview>,
    started: Boot,
    mut stopped: oneshot::Receiver<()>,
) {
    let live = Live::begin();
    let mut is_last = false;
    loop {
        let Some(view) = handle.view().await else { return };
        let now = clock.now().boot;
        let (height, width) = console::Term::stdout().size();
        live.show(&lines(
            &view,
            &overview,
            (started, now),
            (width.into(), height.into()),
        ));
        if is_last {
            return;
        }
        let wait = view.pause(EVERY, EVERY_FOR_EACH);
        is_last = tokio::time::timeout(wait, &mut stopped).await.is_ok();
    }
}

/// An object in the table.
struct Row<'a> {
    key: &'a Key,
    view: &'a KeyView,
    /// How it stands after its last pass; `None` before the first one.
    standing: Option<&'a Standing>,
}

impl Row<'_> {
    fn state(&self) -> State {
        match self.standing {
            Some(standing) if !self.view.running && !self.view.queued => standing.state,
            Some(standing) if standing.state < State::Working => standing.state,
            _ => State::Working,
        }
    }
}

/// The lines of the live part: how the host stands, and a row for each object as far as there is room. Objects
/// that fail or have more to do come first if there is no room for all.
fn lines(
    view: &View,
    overview: &Overview,
    (started, now): (Boot, Boot),
    (width, height): (usize, usize),
) -> Vec<String> {
    let standings: BTreeMap<Key, Standing> = overview.objects().into_iter().collect();
    let mut rows: Vec<Row<'_>> = Vec::with_capacity(view.keys.len());
    rows.extend(view.keys.iter().map(|(key, view)| Row {
        key,
        view,
        standing: standings.get(key),
    }));
    let mut lines = summary(view, &rows, now - started);
    lines
        .iter_mut()
        .for_each(|line| *line = console::truncate_str(line, width, "…").into_owned());
    // A heading for the columns, and a line for those that are left out.
    let room = height.saturating_sub(FREE + lines.len() + 2);
    let left_out = rows.len().saturating_sub(room);
    if left_out > 0 {
        rows.sort_by_key(Row::state);
        rows.truncate(room);
    }
    let mut table = Table::new(&["KIND", "OBJECT", "PHASE", "NEXT", "LAST EVENT"]);
    for row in &rows {
        let standing = row.standing;
        let of = |text: fn(&Standing) -> &str| standing.map_or("-", text).to_owned();
        table.row([
            of(|standing| &standing.kind),
            row.key.to_string(),
            of(|standing| &standing.phase),
            next(row, now),
            last_event(row),
        ]);
    }
    if !rows.is_empty() {
        lines.extend(table.lines(Some(width)));
    }
    if left_out > 0 {
        lines.push(format!("… and {left_out} more"));
    }
    lines
}

fn summary(view: &View, rows: &[Row<'_>], up: Duration) -> Vec<String> {
    let mut counts = BTreeMap::<State, usize>::new();
    for row in rows {
        *counts.entry(row.state()).or_default() += 1;
    }
    let all = rows.len();
    let at_rest = rows.iter().filter(|row| row.state().is_at_rest()).count();
    let filled = (at_rest * BAR).checked_div(all).unwrap_or(0);
    let bar = "#".repeat(filled) + &"-".repeat(BAR - filled);
    let each = counts
        .iter()
        .map(|(state, count)| format!("{count} {}", state.as_str()));
    let each: Vec<String> = each.collect();
    let passes: u64 = view.health.values().map(|health| health.passes).sum();
    let up = millis(up) as f64 / 1_000.0;
    let objects = if all == 1 { "object" } else { "objects" };
    let mut lines = vec![format!(
        "{up:.1}s [{bar}] {all} {objects}: {}; {passes} passes",
        if each.is_empty() {
            "none yet".to_owned()
        } else {
            each.join(", ")
        }
    )];
    if !view.holder {
        let why = view
            .lease
            .as_ref()
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        lines.push(format!("this host does not hold the lease{why}"));
    }
    if view.loading > 0 {
        lines.push(format!("{} bindings are being loaded", view.loading));
    }
    for (name, why) in &view.unloaded {
        lines.push(format!("binding {name} is not loaded: {why}"));
    }
    lines.iter().map(|line| crate::display::printable(line)).collect()
}

/// What comes next for an object: `now`, the time until its next pass, or how it is at rest.
fn next(row: &Row<'_>, now: Boot) -> String {
    let state = row.state();
    match row.view.due {
        _ if row.view.running || row.view.queued => "now".to_owned(),
        _ if state.is_at_rest() => state.as_str().to_owned(),
        // Whole seconds: tenths would change with every frame.
        Some(due) if due > now => duration(Duration::from_secs((due - now).as_secs_f64().ceil() as u64)),
        Some(_) => "now".to_owned(),
        None => "-".to_owned(),
    }
}

/// What an object waits for, unless that is the time or a change; otherwise what happened last.
fn last_event(row: &Row<'_>) -> String {
    match (&row.view.waiting, row.standing) {
        (WaitReason::Time(_) | WaitReason::Change, Some(standing)) => standing.last_event().to_owned(),
        (waiting, _) => format!("waits for {waiting}"),
    }
}
