//! Watches: a full list, then every change. If the server has forgotten the last version, the watch lists
//! again.
//!
//! # Flow
//!
//! ```text
//!              ┌────────────── BackingOff ◄──────────────┐
//!              ▼                   ▲                     │
//!  begin ► Listing ──Listed──► Opening ───────────► Following ─► Applied, Deleted …
//!              ▲                   ▲                  │  │
//!              │                   └──── it ended ────┘  │
//!              └────────── the version is forgotten ─────┘
//! ```
//!
//! A server ends a watch after some minutes, and a network may end it sooner. The watch is then opened again
//! at the last version that an event or a bookmark brought. Core does not notice. If the watch cannot be
//! opened again, `Failed` says that answers from the cache may be old. After a wait everything is listed
//! again.
//!
//! # Guarantees
//!
//! - `Failed` comes once for each new reason until the next `Listed`. After a `Failed` no event comes before
//!   a `Listed`.
//! - A version that the server has forgotten (410) is no failure: the watch lists again. Twice in a row it is
//!   a failure.
//! - The waits grow as long as no watch shows anything, even if each list succeeds.
//!
//! # Caveats
//!
//! - A connection that dies in silence is noticed after [`SILENT`] if the server sends bookmarks, otherwise
//!   when the watch should end.

mod lines;

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures::{Stream, stream};
use kube::client::Body;
use polity_core::call::{Scope, WatchEvent};
use polity_core::contract::{Code, Failure};
use polity_core::object::{Object, ResourceVersion};
use polity_kube_rules::fields;
use tokio::time::{Instant, sleep};

use crate::error::Verb;
use crate::read::{PAGE, refuse_secrets};
use crate::request::until;
use crate::{Cluster, large, path};
use lines::{Line, Lines};

/// How long a watch lasts before it is opened again. Load balancers cut connections after five minutes.
const LASTS: Duration = Duration::from_secs(290);
/// How much later than [`LASTS`] the server may end a watch.
const LATE: Duration = Duration::from_secs(15);
/// The longest silence of a server that sends bookmarks. It sends one about every minute.
const SILENT: Duration = Duration::from_secs(150);
/// A watch that lasted this long works, even if it showed no event.
const STEADY: Duration = Duration::from_secs(30);
/// The longest time for one page of a list. Only this watch waits for it.
const LIST_LONGEST: Duration = Duration::from_secs(30);
/// The longest time for opening a watch.
const OPEN_LONGEST: Duration = Duration::from_secs(10);
/// The first and the longest wait after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));

impl Cluster {
    /// Shows the objects in scope and their changes, without end.
    pub fn watch(&self, scope: Scope) -> impl Stream<Item = WatchEvent> + Send + use<> {
        let watch = Watch {
            cluster: self.clone(),
            scope,
            state: State::Listing,
            failures: 0,
            said: None,
        };
        stream::unfold(watch, |mut watch| async move {
            let event = watch.next().await;
            Some((event, watch))
        })
    }

    async fn list_scope(&self, scope: &Scope) -> Result<(Vec<Object>, String), Failure> {
        refuse_secrets(&scope.kind)?;
        match self.list_pages(scope, Some(PAGE)).await {
            // The server forgot the version of the first page before the last page was asked for. One page
            // with everything cannot be forgotten half-way.
            Err(failure) if failure.code == Code::OutOfRange => self.list_pages(scope, None).await,
            other => other,
        }
    }

    async fn list_pages(&self, scope: &Scope, size: Option<usize>) -> Result<(Vec<Object>, String), Failure> {
        let what = format!("list of {}", scope.kind.kind);
        let selector = selector(scope);
        let (mut objects, mut next): (Vec<Object>, Option<String>) = (Vec::new(), None);
        loop {
            let mut pairs = Vec::new();
            pairs.extend(selector.as_deref().map(|s| ("fieldSelector", s)));
            pairs.extend(next.as_deref().map(|token| ("continue", token)));
            let page = self.page(&scope.kind, scope.namespace.as_deref(), &what, size, &pairs);
            let page = until(Instant::now() + LIST_LONGEST, Verb::Get, &what, page).await?;
            let (of, found) = (scope.clone(), page.objects);
            let trimmed = move || found.iter().map(|object: &Object| of.trimmed(object)).collect();
            objects.append(&mut self.in_turn(page.bytes, trimmed).await);
            next = page.next;
            if next.is_none() {
                return Ok((objects, page.version));
            }
        }
    }

    async fn open_scope(&self, scope: &Scope, version: &str) -> Result<Body, Failure> {
        let what = format!("watch of {}", scope.kind.kind);
        let lasts = LASTS.as_secs().to_string();
        let selector = selector(scope);
        let mut pairs = vec![
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &lasts),
            ("resourceVersion", version),
        ];
        pairs.extend(selector.as_deref().map(|s| ("fieldSelector", s)));
        let opened = async {
            let resource = self.resource(&scope.kind).await?;
            let path = resource.collection(scope.namespace.as_deref())? + &path::query(&pairs);
            self.open(&what, &path).await
        };
        until(Instant::now() + OPEN_LONGEST, Verb::Get, &what, opened).await
    }
}

/// A watch of one scope: its state, and what all states share.
struct Watch {
    cluster: Cluster,
    scope: Scope,
    state: State,
    /// Lists and watches that failed in a row.
    failures: u32,
    /// The reason that the last `Failed` gave since the last list; `None` if there was no `Failed`.
    said: Option<String>,
}

/// What a watch is doing. Each state holds only what is valid in it.
enum State {
    /// The watch asks for everything in scope.
    Listing,
    /// The watch asks for what comes after a version.
    Opening(Progress),
    /// The server shows what comes after a version.
    Following(Progress, Lines),
    /// The watch waits this long, then lists.
    BackingOff(Duration),
}

/// How far a watch has come since the last list.
struct Progress {
    /// The newest version that the list, an event or a bookmark brought.
    version: String,
    /// Whether the server has sent an event or a bookmark since the list, or kept the watch open for a while.
    works: bool,
}

/// The next state, and the event to show, if any.
type Transition = (State, Option<WatchEvent>);

impl Watch {
    /// Goes from state to state until a transition shows an event.
    async fn next(&mut self) -> WatchEvent {
        loop {
            // A transition consumes its state. `Listing` stands in for it meanwhile, and nobody sees that.
            let (next, event) = match std::mem::replace(&mut self.state, State::Listing) {
                State::Listing => self.list().await,
                State::Opening(progress) => self.open(progress).await,
                State::Following(progress, lines) => self.follow(progress, lines).await,
                State::BackingOff(wait) => {
                    sleep(wait).await;
                    (State::Listing, None)
                }
            };
            self.state = next;
            if let Some(event) = event {
                return event;
            }
        }
    }

    async fn list(&mut self) -> Transition {
        match self.cluster.list_scope(&self.scope).await {
            Ok((objects, version)) => self.on_list(objects, version),
            Err(failure) => self.on_failure(&failure),
        }
    }

    async fn open(&mut self, progress: Progress) -> Transition {
        match self.cluster.open_scope(&self.scope, &progress.version).await {
            Ok(body) => {
                let lines = Lines::new(body, progress.version.clone());
                (State::Following(progress, lines), None)
            }
            Err(failure) => self.on_end(&progress, &failure),
        }
    }

    async fn follow(&mut self, progress: Progress, mut lines: Lines) -> Transition {
        match lines.next().await {
            Ok(Some(text)) => {
                let (length, scope) = (text.len(), self.scope.clone());
                match large::at_once(length, move || lines::decode(&text, &scope)).await {
                    Ok(line) => on_line(progress, lines, line),
                    Err(failure) => self.on_end(&progress, &failure),
                }
            }
            Ok(None) => {
                let failure = Failure::new(Code::Unavailable, "the server ended it at once without an event");
                self.on_cut(progress, &lines, failure)
            }
            Err(failure) => self.on_cut(progress, &lines, failure),
        }
    }

    fn on_list(&mut self, objects: Vec<Object>, version: String) -> Transition {
        // What the list brings is new, so the same failure is news again.
        self.said = None;
        // A version that is no number counts as the oldest. Such a list takes nothing out of the cache.
        let listed = WatchEvent::Listed {
            objects,
            version: ResourceVersion(version.parse().unwrap_or_default()),
        };
        let progress = Progress {
            version,
            works: false,
        };
        (State::Opening(progress), Some(listed))
    }

    /// The lines ended, as they all do some time. The watch is opened again at their last version.
    fn on_cut(&mut self, progress: Progress, lines: &Lines, failure: Failure) -> Transition {
        // A watch that ended at once and brought no news would end at once again. Opening it again without a
        // wait would be an endless loop against the server.
        if lines.began_at == progress.version && lines.opened.elapsed() < STEADY {
            let what = format!("watch of {}: {}", self.scope.kind.kind, failure.message);
            return self.on_end(&progress, &Failure::new(failure.code, what));
        }
        // The list is not repeated: the watch goes on at a version that the server still knows, or `on_end`
        // hears that it does not.
        let works = true;
        (State::Opening(Progress { works, ..progress }), None)
    }

    /// The watch cannot be opened or followed from its version.
    fn on_end(&mut self, progress: &Progress, failure: &Failure) -> Transition {
        // Only a watch that worked resets the failures. A list that succeeds does not: a server whose lists
        // work and whose watches fail would be listed without a pause.
        if progress.works {
            self.failures = 0;
        }
        self.on_failure(failure)
    }

    fn on_failure(&mut self, failure: &Failure) -> Transition {
        self.failures = self.failures.saturating_add(1);
        // The server forgot the version: that is normal after a long silence, and the list that follows
        // brings everything. If it happens again at once, it is a failure like any other, or the watch would
        // list in a loop.
        if failure.code == Code::OutOfRange && self.failures == 1 {
            return (State::Listing, None);
        }
        let why = failure.to_string();
        let is_news = self.said.as_ref() != Some(&why);
        let event = is_news.then(|| WatchEvent::Failed(why.clone()));
        self.said = Some(why);
        (State::BackingOff(wait(self.failures, failure)), event)
    }
}

fn on_line(progress: Progress, mut lines: Lines, line: Line) -> Transition {
    // Only a server that has sent a bookmark can be expected to send the next one.
    lines.bookmarks |= line.event.is_none();
    let version = if line.version.is_empty() {
        progress.version
    } else {
        line.version
    };
    let works = true;
    (State::Following(Progress { version, works }, lines), line.event)
}

fn selector(scope: &Scope) -> Option<String> {
    let name = scope
        .name
        .as_deref()
        .map(|name| fields::term("metadata.name", name));
    let node = scope
        .node
        .as_deref()
        .map(|node| fields::term("spec.nodeName", node));
    let terms: Vec<String> = name.into_iter().chain(node).collect();
    (!terms.is_empty()).then(|| terms.join(","))
}

/// The wait after this many failures in a row. It doubles each time, and is up to a third shorter at random
/// so that not all watches return at once. It is at least as long as the server asks for.
fn wait(failures: u32, failure: &Failure) -> Duration {
    let full = (BACKOFF.0 * 2u32.pow(failures.saturating_sub(1).min(6))).min(BACKOFF.1);
    let percent = (RandomState::new().hash_one(failures) % 100) as u32;
    let spread = full - full / 300 * percent;
    spread.max(Duration::from_millis(failure.retry_after.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, Then, kind, not_served, refusal, widget};
    use futures::StreamExt as _;
    use serde_json::{Value, json};

    fn scope() -> Scope {
        Scope {
            kind: kind("g/v1", "Widget"),
            namespace: Some("a".into()),
            name: None,
            node: None,
            fields: Vec::new(),
        }
    }

    fn list(version: u64, items: &[Value]) -> Reply {
        Reply::json(
            200,
            json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}),
        )
    }

    fn line(event: &str, object: Value) -> Value {
        json!({"type": event, "object": object})
    }

    fn bookmark(version: u64) -> Value {
        let metadata = json!({"resourceVersion": version.to_string()});
        line("BOOKMARK", json!({"kind": "Widget", "metadata": metadata}))
    }

    fn expired() -> Value {
        let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
        line("ERROR", status)
    }

    /// The events of a watch as text, until the watch has shown nothing for an hour.
    async fn said(fake: &Fake, scope: Scope) -> Vec<String> {
        let mut events = std::pin::pin!(fake.cluster().watch(scope));
        let mut said = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(3_600), events.next()).await {
            said.push(match event {
                WatchEvent::Listed { objects, version } => format!("listed {objects:?} at {}", version.0),
                WatchEvent::Applied(object) => format!("applied {object:?}"),
                WatchEvent::Deleted(object) => format!("deleted {object:?}"),
                WatchEvent::Failed(message) => format!("failed: {message}"),
            });
            if said.len() == 20 {
                break;
            }
        }
        said
    }

    /// The versions at which watches were opened; `list` for a list.
    fn began(fake: &Fake) -> Vec<String> {
        let paths = fake.paths();
        let version = |path: &String| match path.split_once("resourceVersion=") {
            Some((_, rest)) => rest.split('&').next().unwrap_or_default().to_owned(),
            None => "list".to_owned(),
        };
        paths.iter().map(version).collect()
    }

    /// The seconds from the first request to each later one.
    fn times(fake: &Fake) -> Vec<f64> {
        let seen = fake.seen();
        seen.iter().map(|s| (s.at - seen[0].at).as_secs_f64()).collect()
    }

    fn watch() -> Watch {
        Watch {
            cluster: Fake::serving([]).cluster(),
            scope: scope(),
            state: State::Listing,
            failures: 0,
            said: None,
        }
    }

    fn progress(works: bool) -> Progress {
        Progress {
            version: "5".into(),
            works,
        }
    }

    #[tokio::test]
    async fn a_forgotten_version_is_listed_at_once_and_backed_off_from_the_second_time() {
        let mut watch = watch();
        let forgotten = Failure::new(Code::OutOfRange, "too old");
        let first = watch.on_end(&progress(true), &forgotten);
        assert!(matches!(first, (State::Listing, None)));
        let second = watch.on_end(&progress(false), &forgotten);
        assert!(matches!(
            second,
            (State::BackingOff(_), Some(WatchEvent::Failed(_)))
        ));
        let after_one_that_worked = watch.on_end(&progress(true), &forgotten);
        assert!(matches!(after_one_that_worked, (State::Listing, None)));
    }

    #[tokio::test]
    async fn a_failure_is_news_once_between_two_lists() {
        let mut watch = watch();
        let cut = Failure::new(Code::Unavailable, "cut");
        for is_news in [true, false] {
            let (state, event) = watch.on_failure(&cut);
            assert!(matches!(state, State::BackingOff(_)));
            assert_eq!(event.is_some(), is_news);
        }
        let (state, event) = watch.on_list(Vec::new(), "7".into());
        assert!(matches!(state, State::Opening(progress) if progress.version == "7" && !progress.works));
        assert!(matches!(event, Some(WatchEvent::Listed { .. })));
        assert!(watch.on_failure(&cut).1.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_followed_by_every_change() {
        let fake = Fake::serving([
            list(5, &[widget("x", 3)]),
            Reply::Watch(
                vec![
                    line("ADDED", widget("y", 6)),
                    line("MODIFIED", widget("x", 7)),
                    line("DELETED", widget("y", 8)),
                ],
                Then::Silence,
            ),
        ]);
        assert_eq!(
            said(&fake, scope()).await[..4],
            [
                "listed [Widget x@3] at 5",
                "applied Widget y@6",
                "applied Widget x@7",
                "deleted Widget y@8"
            ]
        );
        assert_eq!(
            fake.paths()[..2],
            [
                "GET /apis/g/v1/namespaces/a/widgets?limit=500",
                "GET /apis/g/v1/namespaces/a/widgets?watch=true&allowWatchBookmarks=true&timeoutSeconds=290&resourceVersion=5",
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_or_is_cut_goes_on_from_its_last_bookmark_unnoticed() {
        for then in [Then::End, Then::Cut] {
            let fake = Fake::serving([
                list(5, &[]),
                Reply::Watch(vec![line("ADDED", widget("x", 6)), bookmark(9)], then),
                Reply::Watch(vec![line("ADDED", widget("y", 12))], then),
                Reply::Watch(vec![line("ADDED", widget("z", 13))], Then::Silence),
            ]);
            assert_eq!(
                said(&fake, scope()).await[..4],
                [
                    "listed [] at 5",
                    "applied Widget x@6",
                    "applied Widget y@12",
                    "applied Widget z@13"
                ]
            );
            assert_eq!(began(&fake)[..4], ["list", "5", "9", "12"]);
            assert_eq!(times(&fake)[3], 0.0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_the_server_forgot_is_listed_again_at_once() {
        let in_the_stream = Reply::Watch(vec![line("ADDED", widget("x", 6)), expired()], Then::End);
        let at_the_start = refusal(410, "Expired", "");
        for gone in [in_the_stream, at_the_start] {
            let fake = Fake::serving([
                list(5, &[]),
                gone,
                list(20, &[widget("z", 19)]),
                Reply::Watch(vec![], Then::Silence),
            ]);
            let said = said(&fake, scope()).await;
            let again = said.iter().position(|s| s == "listed [Widget z@19] at 20");
            let before = &said[..again.expect("listed again")];
            assert!(!before.iter().any(|s| s.starts_with("failed")), "{said:?}");
            assert_eq!(began(&fake)[..4], ["list", "5", "list", "20"]);
            assert_eq!(times(&fake)[3], 0.0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_forgets_what_it_just_listed_is_not_asked_without_end() {
        let fake = Fake::serving([
            list(5, &[]),
            refusal(410, "Expired", ""),
            list(6, &[]),
            refusal(410, "Expired", ""),
            list(7, &[]),
        ]);
        let said = said(&fake, scope()).await;
        assert_eq!(said[..2], ["listed [] at 5", "listed [] at 6"]);
        assert_eq!(said[2], "failed: out-of-range: watch of Widget: Expired of ");
        assert!(times(&fake)[4] > 0.8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_said_once_and_the_waits_grow() {
        let script = (0..9).map(|_| Reply::Refused).chain([list(5, &[])]);
        let fake = Fake::serving(script.collect::<Vec<_>>());
        let said = said(&fake, scope()).await;
        assert!(
            said[0].starts_with("failed: unavailable: list of Widget: "),
            "{said:?}"
        );
        assert_eq!(said[1], "listed [] at 5");
        let times = times(&fake);
        let waits: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for (wait, full) in waits.iter().zip([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]) {
            // Timers are exact to a millisecond.
            assert!(*wait > full * 0.66 && *wait <= full + 0.002, "{wait} of {full}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_cannot_resume_is_listed_again_after_a_failure() {
        let fake = Fake::serving([
            list(5, &[]),
            Reply::Watch(vec![line("ADDED", widget("x", 6))], Then::Cut),
            Reply::Refused,
            list(9, &[]),
            Reply::Watch(vec![], Then::Silence),
        ]);
        let said = said(&fake, scope()).await;
        assert_eq!(said[..2], ["listed [] at 5", "applied Widget x@6"]);
        assert!(said[2].contains("cannot reach the API server"), "{said:?}");
        assert_eq!(said[3], "listed [] at 9");
        assert_eq!(began(&fake)[..5], ["list", "5", "6", "list", "9"]);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_succeed_do_not_hide_that_no_watch_does() {
        let script = (0..12).map(|n| match n % 2 {
            0 => list(5, &[]),
            _ => refusal(403, "Forbidden", ""),
        });
        let fake = Fake::serving(script.collect::<Vec<_>>());
        let said = said(&fake, scope()).await;
        for pair in said[..12].chunks(2) {
            assert!(
                pair[0].starts_with("listed") && pair[1].starts_with("failed"),
                "{pair:?}"
            );
        }
        assert!(times(&fake)[10] > 15.0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_as_soon_as_it_begins_is_a_failure() {
        for (then, why) in [
            (Then::End, "the server ended it"),
            (Then::Cut, "the connection was cut"),
        ] {
            let fake = Fake::serving([
                list(5, &[]),
                Reply::Watch(vec![], then),
                list(6, &[]),
                Reply::Watch(vec![], Then::Silence),
            ]);
            let said = said(&fake, scope()).await;
            assert!(
                said[1].starts_with(&format!("failed: unavailable: watch of Widget: {why}")),
                "{said:?}"
            );
            assert!(times(&fake)[2] > 0.5);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_died_in_silence_is_given_up() {
        let fake = Fake::serving([
            list(5, &[]),
            Reply::Watch(vec![bookmark(6)], Then::Silence),
            Reply::Watch(vec![], Then::Silence),
            Reply::Watch(vec![], Then::Silence),
        ]);
        let said = said(&fake, scope()).await;
        assert_eq!(began(&fake)[..4], ["list", "5", "6", "6"]);
        let times = times(&fake);
        assert!((times[2] - 150.0).abs() < 1.0, "{times:?}");
        assert!((times[3] - times[2] - 305.0).abs() < 1.0, "{times:?}");
        assert_eq!(said[0], "listed [] at 5");
    }

    #[tokio::test(start_paused = true)]
    async fn pages_are_one_list() {
        let page = |token: &str, name: &str| {
            let metadata = json!({"resourceVersion": "5", "continue": token});
            Reply::json(200, json!({"metadata": metadata, "items": [widget(name, 1)]}))
        };
        let fake = Fake::serving([page("t/1", "x"), page("", "y")]);
        assert_eq!(
            said(&fake, scope()).await[0],
            "listed [Widget x@1, Widget y@1] at 5"
        );
        assert!(fake.paths()[1].ends_with("?limit=500&continue=t%2F1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_whose_pages_expire_is_taken_at_once() {
        let metadata = json!({"resourceVersion": "5", "continue": "t"});
        let fake = Fake::serving([
            Reply::json(200, json!({"metadata": metadata, "items": [widget("x", 1)]})),
            refusal(410, "Expired", ""),
            list(9, &[widget("x", 1), widget("y", 7)]),
        ]);
        let said = said(&fake, scope()).await;
        assert_eq!(said[0], "listed [Widget x@1, Widget y@7] at 9");
        assert_eq!(fake.paths()[2], "GET /apis/g/v1/namespaces/a/widgets");
    }

    #[tokio::test(start_paused = true)]
    async fn a_scope_selects_and_trims() {
        let mut pod = widget("p", 3);
        pod["kind"] = json!("Pod");
        pod["metadata"]["annotations"] = json!({"a": "b"});
        pod["metadata"]["labels"] = json!({"l": "m"});
        pod["metadata"]["generation"] = json!(4);
        pod["spec"] = json!({"nodeName": "n", "containers": []});
        let fake = Fake::serving([list(5, &[pod])]);
        let scope = Scope {
            kind: kind("v1", "Pod"),
            namespace: None,
            name: Some("p".into()),
            node: Some("n".into()),
            fields: vec!["spec.nodeName".into()],
        };
        let mut events = std::pin::pin!(fake.cluster().watch(scope));
        let Some(WatchEvent::Listed { objects, .. }) = events.next().await else {
            panic!("no list");
        };
        assert_eq!(
            objects[0].tree(),
            json!({
                "apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "n"},
                "metadata": {"namespace": "a", "name": "p", "uid": "uid-p", "resourceVersion": "3",
                    "labels": {"l": "m"}, "generation": 4},
            })
        );
        assert_eq!(
            fake.paths()[0],
            "GET /api/v1/pods?limit=500&fieldSelector=metadata.name%3Dp%2Cspec.nodeName%3Dn"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_served_is_a_failure_until_it_is() {
        let served = json!({"resources": [{"name": "gizmos", "kind": "Gizmo", "namespaced": true}]});
        let fake = Fake::answering([not_served(), Reply::json(200, served), list(5, &[])]);
        let scope = Scope {
            kind: kind("h/v1", "Gizmo"),
            ..scope()
        };
        let said = said(&fake, scope).await;
        assert_eq!(
            said[0],
            "failed: unimplemented: the API server does not serve Gizmo of h/v1"
        );
        assert_eq!(said[1], "listed [] at 5");
    }

    #[tokio::test(start_paused = true)]
    async fn secrets_are_not_watched() {
        let fake = Fake::serving([]);
        let scope = Scope {
            kind: kind("v1", "Secret"),
            ..scope()
        };
        assert!(said(&fake, scope).await[0].starts_with("failed: permission-denied"));
        assert!(fake.paths().is_empty());
    }
}
