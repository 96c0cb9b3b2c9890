//! Reads that go to the API server and not to the cache.

use http::StatusCode;
use polity_core::contract::{Answer, Code, Failure, Kind, ListQuery, ObjectQuery, ObjectRef, Question};
use polity_core::object::Object;
use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::error::Verb;
use crate::path::core_object;
use crate::request::{LARGEST, named, too_large, until};
use crate::{Cluster, LONGEST, json, path};

/// The most objects in one page of a list.
pub(crate) const PAGE: usize = 500;
/// The most bytes of all pages of a list that is read with `latest`. Lists for the cache have no such limit:
/// they are trimmed as they come in.
const LONGEST_LIST: usize = 64 << 20;

impl Cluster {
    /// Answers a question about the cluster. The answer is the object, an array of objects sorted by
    /// namespace and name, or `{exists, keys, digest}` of a Secret.
    pub async fn read(&self, question: &Question) -> Answer {
        let end = Instant::now() + LONGEST;
        match question {
            Question::Object(query) => {
                refuse_secrets(&query.object.kind)?;
                until(end, Verb::Get, &named(&query.object), self.get(&query.object)).await
            }
            Question::Objects(query) => {
                refuse_secrets(&query.kind)?;
                let what = format!("list of {}", query.kind.kind);
                until(end, Verb::Get, &what, self.list(&what, query)).await
            }
            Question::Secret(secret) => {
                let secret = core_object("Secret", secret.namespace.as_deref(), &secret.name);
                until(end, Verb::Get, &named(&secret), self.secret(&secret)).await
            }
            Question::Reachable(_) => self.answers().await,
            // A cloud answers the first and the last, and core holds the locks.
            Question::Cloud(_) | Question::Lock(_) | Question::Credential(_) => Err(Failure::new(
                Code::Unimplemented,
                "the API server does not answer questions of this kind",
            )),
        }
    }

    /// A whole object, as the API server has it now.
    pub async fn latest(&self, object: ObjectRef) -> Answer {
        let query = ObjectQuery {
            object,
            projection: Vec::new(),
            latest: true,
        };
        self.read(&Question::Object(query)).await
    }

    /// Whether the API server answers and is ready: `true`, or the reason why not.
    async fn answers(&self) -> Answer {
        let (end, what) = (Instant::now() + LONGEST, "/readyz");
        let look = async {
            let response = self.respond(Verb::Get, what, what, None).await?;
            match response.status() {
                // An API server that refuses the question answers, so it is reachable.
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Ok(()),
                status if status.is_success() => Ok(()),
                _ => Err(self.refused(Verb::Get, what, what, response).await),
            }
        };
        match until(end, Verb::Get, what, look).await {
            Ok(()) => Ok(Value::Bool(true)),
            Err(failure) => Err(Failure::new(Code::Unavailable, failure.message)),
        }
    }

    pub(crate) async fn get(&self, object: &ObjectRef) -> Answer {
        let resource = self.resource(&object.kind).await?;
        let path = resource.object(object.namespace.as_deref(), &object.name, None)?;
        self.call(Verb::Get, &named(object), &path, None).await
    }

    async fn list(&self, what: &str, query: &ListQuery) -> Answer {
        let limit = match query.limit {
            0 => usize::MAX,
            limit => limit as usize,
        };
        // Ask for one object more than the limit: if it comes, there are too many.
        let size = PAGE.min(limit.saturating_add(1));
        let (mut objects, mut next): (Vec<Value>, Option<String>) = (Vec::new(), None);
        let mut bytes = 0;
        loop {
            let mut pairs = Vec::new();
            pairs.extend(query.label_selector.as_deref().map(|s| ("labelSelector", s)));
            pairs.extend(query.field_selector.as_deref().map(|s| ("fieldSelector", s)));
            pairs.extend(next.as_deref().map(|token| ("continue", token)));
            let page: Page<Value> = self
                .page(&query.kind, query.namespace.as_deref(), what, Some(size), &pairs)
                .await?;
            bytes += page.bytes;
            if bytes > LONGEST_LIST {
                return Err(too_large(what, LONGEST_LIST));
            }
            objects.extend(page.objects);
            if objects.len() > limit {
                let message = format!("{what}: there are more objects than the limit of {limit}");
                return Err(Failure::new(Code::ResourceExhausted, message));
            }
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        // The cache answers in this order. A policy must not see where an answer comes from.
        let place = |object: &Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            (text("namespace"), text("name"))
        };
        objects.sort_by_cached_key(place);
        Ok(Value::Array(objects))
    }

    /// One page with at most `size` objects. With `None` the server chooses. If an answer is too large, the
    /// page is asked for again with half as many objects.
    pub(crate) async fn page<T: Item>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        what: &str,
        mut size: Option<usize>,
        query: &[(&str, &str)],
    ) -> Result<Page<T>, Failure> {
        let resource = self.resource(kind).await?;
        let collection = resource.collection(namespace)?;
        loop {
            let limit = size.map(|size| size.to_string());
            let limit = limit.iter().map(|limit| ("limit", limit.as_str()));
            let pairs: Vec<(&str, &str)> = limit.chain(query.iter().copied()).collect();
            let path = collection.clone() + &path::query(&pairs);
            let (kind, of) = (kind.clone(), what.to_owned());
            let read = move |text: &[u8]| Page::read(text, &kind, &of);
            match (self.call_list(what, &path, read).await?, size) {
                (Some(page), _) => return Ok(page),
                // One object is too large by itself. A shorter page cannot be asked for.
                (None, Some(1)) => return Err(too_large(what, LARGEST)),
                (None, _) => size = Some(size.unwrap_or(PAGE) / 2),
            }
        }
    }
}

/// One page of a list.
pub(crate) struct Page<T> {
    pub(crate) objects: Vec<T>,
    pub(crate) version: String,
    /// The token of the next page; `None` on the last page.
    pub(crate) next: Option<String>,
    /// The length of the page's text.
    pub(crate) bytes: usize,
}

/// A list as a server writes it.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(default)]
    metadata: Value,
    #[serde(borrow)]
    items: &'a RawValue,
}

impl<T: Item> Page<T> {
    /// Reads a page. An answer without items is no empty list: taken for one, it would make all objects vanish.
    pub(crate) fn read(text: &[u8], kind: &Kind, what: &str) -> Result<Self, Failure> {
        let wrong = |e: serde_json::Error| {
            let wrong = match e.classify() {
                Category::Data => "a list of objects".to_owned(),
                _ => format!("JSON: {e}"),
            };
            Failure::new(Code::Internal, format!("{what}: the answer is not {wrong}"))
        };
        let Written { metadata, items } = serde_json::from_slice(text).map_err(wrong)?;
        // Servers that are written in Go show an empty list as null.
        let items: Option<Vec<&RawValue>> = serde_json::from_str(items.get()).map_err(wrong)?;
        let objects = items.into_iter().flatten();
        let objects = objects.map(|item| T::read(item.get().as_bytes(), kind));
        let field = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        Ok(Page {
            objects: objects.collect::<Result<_, _>>().map_err(wrong)?,
            version: field("resourceVersion"),
            next: Some(field("continue")).filter(|token| !token.is_empty()),
            bytes: text.len(),
        })
    }
}

/// What an item of a list is read as. It gets its kind from the list, because servers leave it out of the items.
pub(crate) trait Item: Sized + Send + 'static {
    fn read(text: &[u8], kind: &Kind) -> Result<Self, serde_json::Error>;
}

impl Item for Value {
    fn read(text: &[u8], kind: &Kind) -> Result<Self, serde_json::Error> {
        let mut item = json::parse(text)?;
        if let Some(fields) = item.as_object_mut() {
            fields.insert("apiVersion".to_owned(), kind.api_version.as_str().into());
            fields.insert("kind".to_owned(), kind.kind.as_str().into());
        }
        Ok(item)
    }
}

impl Item for Object {
    fn read(text: &[u8], kind: &Kind) -> Result<Self, serde_json::Error> {
        Object::read_as(kind, text, json::DEPTH)
    }
}

/// Refuses to read Secrets as objects: their content leaves the host in no answer. [`Question::Secret`]
/// answers what may be known of one.
pub(crate) fn refuse_secrets(kind: &Kind) -> Result<(), Failure> {
    match (kind.api_version.as_str(), kind.kind.as_str()) {
        ("v1", "Secret") => Err(Failure::new(
            Code::PermissionDenied,
            "the content of a Secret is never shown to a policy: ask the question `secret` instead",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, kind, not_found, reference, widget};
    use polity_core::contract::Effect;
    use serde_json::json;

    fn object(of: ObjectRef) -> Question {
        Question::Object(ObjectQuery {
            object: of,
            projection: Vec::new(),
            latest: true,
        })
    }

    fn list(limit: u32) -> Question {
        Question::Objects(ListQuery {
            label_selector: Some("a in (b, c)".into()),
            field_selector: Some("metadata.name=x".into()),
            limit,
            latest: true,
            ..ListQuery::all(kind("g/v1", "Widget"))
        })
    }

    fn page(token: &str, names: &[&str]) -> Reply {
        let items: Vec<Value> = names.iter().map(|name| widget(name, 1)).collect();
        let metadata = json!({"resourceVersion": "5", "continue": token});
        Reply::json(200, json!({"metadata": metadata, "items": items}))
    }

    #[tokio::test]
    async fn an_object_is_answered_as_it_is() {
        let fake = Fake::serving([Reply::json(200, widget("x", 1)), not_found("y")]);
        let cluster = fake.cluster();
        let found = cluster.read(&object(reference("g/v1", "Widget", "a", "x"))).await;
        assert_eq!(found, Ok(widget("x", 1)));
        let absent = cluster.read(&object(reference("g/v1", "Widget", "a", "y"))).await;
        let absent = absent.expect_err("none");
        assert_eq!(absent.code, Code::NotFound);
        assert!(absent.message.starts_with("Widget a/y: "), "{absent}");
    }

    #[tokio::test]
    async fn pages_are_one_answer_in_order() {
        let fake = Fake::serving([page("t", &["z", "b"]), page("", &["a"])]);
        let found = fake.cluster().read(&list(0)).await.expect("objects");
        let names: Vec<&Value> = found
            .as_array()
            .into_iter()
            .flatten()
            .map(|o| &o["metadata"]["name"])
            .collect();
        assert_eq!(names, ["a", "b", "z"]);
        assert_eq!(
            fake.paths()[1],
            "GET /apis/g/v1/widgets?limit=500&labelSelector=a%20in%20%28b%2C%20c%29&fieldSelector=metadata.name%3Dx&continue=t"
        );
    }

    #[tokio::test]
    async fn an_answer_that_is_no_list_is_not_taken_for_an_empty_one() {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
        let fake = Fake::serving([Reply::json(200, status), Reply::json(200, json!({"items": null}))]);
        let cluster = fake.cluster();
        let failure = cluster.read(&list(0)).await.expect_err("no list");
        assert_eq!(failure.code, Code::Internal);
        assert_eq!(cluster.read(&list(0)).await, Ok(json!([])));
    }

    #[tokio::test]
    async fn an_api_server_is_reachable_only_if_it_has_answered() {
        let fake = Fake::serving([
            Reply::Text(200, "ok".into()),
            Reply::Text(401, "who are you".into()),
            Reply::Text(403, "not you".into()),
            Reply::Text(500, "not ready".into()),
            Reply::Text(503, "etcd is away".into()),
            Reply::Refused,
            Reply::NoCredentials,
        ]);
        let cluster = fake.cluster();
        for reachable in [true, true, true, false, false, false, false] {
            let answer = cluster.read(&Question::Reachable(None)).await;
            assert_eq!(answer.is_ok(), reachable, "{answer:?}");
            if let Err(failure) = answer {
                assert_eq!(failure.code, Code::Unavailable, "{failure}");
            }
        }
        assert_eq!(fake.paths()[0], "GET /readyz");
    }

    /// A page with one object of this many MiB.
    fn large(token: &str, name: &str, mib: usize) -> Reply {
        let mut item = widget(name, 1);
        item["spec"] = json!({"x": "x".repeat(mib << 20)});
        let metadata = json!({"resourceVersion": "5", "continue": token});
        Reply::json(200, json!({"metadata": metadata, "items": [item]}))
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_asked_for_again_half_as_long() {
        let fake = Fake::serving([
            large("", "too-large", 16),
            large("", "too-large", 17),
            page("t", &["a"]),
            page("", &["b"]),
        ]);
        let found = fake.cluster().read(&list(0)).await.expect("objects");
        assert_eq!(found.as_array().map(Vec::len), Some(2));
        let paths = fake.paths();
        let sizes = paths
            .iter()
            .map(|path| path.split(['=', '&']).nth(1).unwrap_or_default());
        assert_eq!(sizes.collect::<Vec<_>>(), ["500", "250", "125", "500"]);
    }

    #[tokio::test]
    async fn what_is_too_large_to_be_read_is_refused() {
        // Page sizes: 500, 250, 125, 62, 31, 15, 7, 3 and 1.
        let fake = Fake::serving((0..9).map(|_| large("", "one", 16)));
        let failure = fake.cluster().read(&list(0)).await.expect_err("no page fits");
        assert_eq!(failure.code, Code::ResourceExhausted);
        assert!(failure.message.contains("16 MiB"), "{failure}");
        assert!(fake.paths()[8].contains("limit=1&"), "{:?}", fake.paths());
        let fake = Fake::serving((0..5).map(|n| large("t", &format!("o-{n}"), 15)));
        let failure = fake.cluster().read(&list(0)).await.expect_err("75 MiB in all");
        assert_eq!(failure.code, Code::ResourceExhausted);
        assert!(failure.message.contains("64 MiB"), "{failure}");
        let whole = Reply::json(200, json!({"spec": "x".repeat(16 << 20)}));
        let one = object(reference("g/v1", "Widget", "a", "x"));
        let failure = Fake::serving([whole])
            .cluster()
            .read(&one)
            .await
            .expect_err("one object");
        assert_eq!(
            (failure.code, failure.effect),
            (Code::ResourceExhausted, Effect::None)
        );
    }

    #[tokio::test]
    async fn more_than_the_limit_is_too_much_and_no_further_page_is_asked_for() {
        let fake = Fake::serving([page("t", &["a", "b", "c"])]);
        let failure = fake.cluster().read(&list(2)).await.expect_err("too many");
        assert_eq!(failure.code, Code::ResourceExhausted);
        assert!(fake.paths()[0].contains("limit=3&"));
        let fake = Fake::serving([page("", &["a", "b"])]);
        assert!(fake.cluster().read(&list(2)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_cut_at_the_longest_duration_however_many_pages_it_takes() {
        let fake = Fake::serving([page("t", &["a"])]);
        let began = Instant::now();
        let failure = fake.cluster().read(&list(0)).await.expect_err("no second page");
        assert_eq!(
            (failure.code, failure.effect),
            (Code::DeadlineExceeded, Effect::None)
        );
        assert_eq!(began.elapsed().as_secs(), 5, "well within the lease");
    }

    #[tokio::test]
    async fn secrets_are_read_in_no_other_way() {
        let fake = Fake::serving([]);
        let cluster = fake.cluster();
        let all = Question::Objects(ListQuery {
            cluster: None,
            page: None,
            kind: kind("v1", "Secret"),
            ..match list(0) {
                Question::Objects(query) => query,
                _ => unreachable!("a list"),
            }
        });
        for question in [object(reference("v1", "Secret", "a", "s")), all] {
            let failure = cluster.read(&question).await.expect_err("refused");
            assert_eq!(failure.code, Code::PermissionDenied);
        }
        assert!(fake.paths().is_empty());
    }
}
