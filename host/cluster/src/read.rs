//! Reads that go through to the API server.

use polity_core::contract::{Answer, Code, Failure, Kind, ListQuery, ObjectRef, Question};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::error::Verb;
use crate::request::{named, until};
use crate::secret::core_object;
use crate::{Cluster, LONGEST, path};

/// Objects in one page of a list.
pub(crate) const PAGE: &str = "500";

impl Cluster {
    /// Answers a question of the cluster: the object, an array of objects by namespace and name, or
    /// `{exists, keys, digest}` of a Secret.
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
            Question::Cloud(_) | Question::Lock(_) | Question::Credential(_) => Err(Failure::new(
                Code::Unimplemented,
                "not a question to the API server",
            )),
        }
    }

    /// Whether the API server answers and is ready: `true`, or why not.
    async fn answers(&self) -> Answer {
        let (end, what) = (Instant::now() + LONGEST, "/readyz");
        let look = async { self.open(what, what).await.map(drop) };
        match until(end, Verb::Get, what, look).await {
            // Who refuses to say it answers.
            Err(failure) if !matches!(failure.code, Code::PermissionDenied | Code::Unauthenticated) => {
                Err(Failure::new(Code::Unavailable, failure.message))
            }
            _ => Ok(Value::Bool(true)),
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
        // One more than the limit tells that there are too many.
        let size = PAGE.parse().unwrap_or(usize::MAX).min(limit.saturating_add(1));
        let size = size.to_string();
        let (mut objects, mut next): (Vec<Value>, Option<String>) = (Vec::new(), None);
        loop {
            let mut pairs = vec![("limit", size.as_str())];
            pairs.extend(query.label_selector.as_deref().map(|s| ("labelSelector", s)));
            pairs.extend(query.field_selector.as_deref().map(|s| ("fieldSelector", s)));
            pairs.extend(next.as_deref().map(|token| ("continue", token)));
            let page = self
                .page(&query.kind, query.namespace.as_deref(), what, &pairs)
                .await?;
            objects.extend(page.objects);
            if objects.len() > limit {
                let message = format!("{what}: more than the {limit} that were asked for");
                return Err(Failure::new(Code::ResourceExhausted, message));
            }
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        let place = |object: &Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            (text("namespace"), text("name"))
        };
        objects.sort_by_cached_key(place);
        Ok(Value::Array(objects))
    }

    pub(crate) async fn page(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        what: &str,
        query: &[(&str, &str)],
    ) -> Result<Page, Failure> {
        let resource = self.resource(kind).await?;
        let path = resource.collection(namespace)? + &path::query(query);
        let mut list = self.call_list(what, &path).await?;
        let text = |field: &str| list["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (version, next) = (text("resourceVersion"), text("continue"));
        Ok(Page {
            objects: items(&mut list, kind),
            version,
            next: (!next.is_empty()).then_some(next),
        })
    }
}

/// One page of a list.
pub(crate) struct Page {
    pub(crate) objects: Vec<Value>,
    pub(crate) version: String,
    /// Where the next page begins; none after the last.
    pub(crate) next: Option<String>,
}

/// The objects of a list, with the kind that lists leave out of their items.
fn items(list: &mut Value, kind: &Kind) -> Vec<Value> {
    let Some(Value::Array(mut items)) = list.get_mut("items").map(Value::take) else {
        return Vec::new();
    };
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        item.insert("apiVersion".to_owned(), json!(kind.api_version));
        item.insert("kind".to_owned(), json!(kind.kind));
    }
    items
}

/// Secrets are seen through [`Question::Secret`] alone.
pub(crate) fn refuse_secrets(kind: &Kind) -> Result<(), Failure> {
    match (kind.api_version.as_str(), kind.kind.as_str()) {
        ("v1", "Secret") => Err(Failure::new(
            Code::PermissionDenied,
            "the content of Secrets is not shown",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, kind, not_found, reference, widget};
    use polity_core::contract::{Effect, ObjectQuery};

    fn object(of: ObjectRef) -> Question {
        Question::Object(ObjectQuery {
            object: of,
            projection: Vec::new(),
            latest: true,
        })
    }

    fn list(limit: u32) -> Question {
        Question::Objects(ListQuery {
            cluster: None,
            page: None,
            kind: kind("g/v1", "Widget"),
            namespace: None,
            label_selector: Some("a in (b, c)".into()),
            field_selector: Some("metadata.name=x".into()),
            projection: Vec::new(),
            limit,
            latest: true,
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
        assert_eq!(began.elapsed().as_secs(), 5, "a quarter of the lease");
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
