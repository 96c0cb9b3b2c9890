//! Reads that go through to the API server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polity_core::contract::{Answer, Code, Failure, Kind, ListQuery, ObjectRef, Question};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::error::Verb;
use crate::request::{named, until};
use crate::{Cluster, LONGEST, path};

/// Objects in one page of a list.
pub(crate) const PAGE: &str = "500";
/// The entry of the installation's Secret.
const KEY: &str = "key";

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
            Question::Cloud(_) | Question::Permit(_) | Question::Credential(_) => Err(Failure::new(
                Code::Unimplemented,
                "not a question to the API server",
            )),
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
        let mut list = self.call(Verb::Get, what, &path, None).await?;
        let text = |field: &str| list["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (version, next) = (text("resourceVersion"), text("continue"));
        Ok(Page {
            objects: items(&mut list, kind),
            version,
            next: (!next.is_empty()).then_some(next),
        })
    }

    async fn secret(&self, secret: &ObjectRef) -> Answer {
        let found = match self.get(secret).await {
            Err(failure) if failure.code == Code::NotFound => {
                return Ok(json!({"exists": false, "keys": [], "digest": null}));
            }
            other => other?,
        };
        let key = self
            .installation
            .get_or_try_init(|| self.installation_key())
            .await?;
        // BTreeMap order or not, the digest is over sorted names.
        let data = found["data"].as_object();
        let mut entries: Vec<(&str, &str)> = data
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
            .collect();
        entries.sort_unstable();
        let keys: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
        Ok(json!({"exists": true, "keys": keys, "digest": digest(key, &entries)}))
    }

    /// The bytes of this installation's own Secret, made when there is none: every replica and every start has the
    /// same, and nobody else does.
    async fn installation_key(&self) -> Result<Vec<u8>, Failure> {
        let (namespace, lease) = &self.lease;
        let reference = core_object("Secret", Some(namespace), &format!("{lease}-installation"));
        let found = match self.get(&reference).await {
            Err(failure) if failure.code == Code::NotFound => {
                let fresh = json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                    "metadata": {"name": reference.name, "namespace": reference.namespace},
                    "data": {KEY: STANDARD.encode(random()?)},
                });
                match self.create(&fresh, &[]).await {
                    // Another replica was faster.
                    Err(failure) if failure.code == Code::AlreadyExists => self.get(&reference).await?,
                    other => other?,
                }
            }
            other => other?,
        };
        let key = found["data"][KEY].as_str().unwrap_or_default();
        match STANDARD.decode(key) {
            Ok(key) if !key.is_empty() => Ok(key),
            _ => {
                let message = format!("{} has no entry {KEY:?}", named(&reference));
                Err(Failure::new(Code::DataLoss, message))
            }
        }
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
    for item in items.iter_mut().filter(|item| item.is_object()) {
        item["apiVersion"] = json!(kind.api_version);
        item["kind"] = json!(kind.kind);
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

/// SHA-256 of the key and of everything else with its length before it. The lengths make two different Secrets
/// different inputs; they also leave no use for a digest that somebody extends, which is all that HMAC would add:
/// nobody accepts a digest as proof of anything.
fn digest(key: &[u8], entries: &[(&str, &str)]) -> String {
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    add(key);
    for (name, value) in entries {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn random() -> Result<[u8; 32], Failure> {
    let mut bytes = [0; 32];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(32) => Ok(bytes),
        _ => Err(Failure::new(Code::Internal, "the system gives no random bytes")),
    }
}

fn core_object(kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
    ObjectRef {
        kind: Kind {
            api_version: "v1".into(),
            kind: kind.into(),
        },
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Reply, kind, not_found, reference, refusal, widget};
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

    fn secret(data: Value) -> Reply {
        Reply::json(200, json!({"metadata": {"name": "s"}, "data": data}))
    }

    fn key() -> Reply {
        secret(json!({"key": STANDARD.encode("this installation")}))
    }

    async fn digest_of(script: impl IntoIterator<Item = Reply>) -> Value {
        let question = Question::Secret(reference("v1", "Secret", "a", "s"));
        let cluster = Fake::serving(script).cluster();
        cluster.read(&question).await.expect("an answer")["digest"].clone()
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
        assert_eq!(began.elapsed().as_secs(), LONGEST.as_secs());
    }

    #[tokio::test]
    async fn of_a_secret_only_what_may_be_known_is_answered() {
        let fake = Fake::serving([secret(json!({"user": "cm9vdA==", "pass": "aHVudGVyMg=="})), key()]);
        let question = Question::Secret(reference("anything", "Else", "a", "s"));
        let answer = fake.cluster().read(&question).await.expect("an answer");
        assert_eq!(answer["exists"], true);
        assert_eq!(answer["keys"], json!(["pass", "user"]));
        assert_eq!(answer["digest"].as_str().map(str::len), Some(64));
        assert_eq!(answer.as_object().map(|o| o.len()), Some(3));
        assert_eq!(fake.paths()[0], "GET /api/v1/namespaces/a/secrets/s");
    }

    #[tokio::test]
    async fn a_missing_secret_is_an_answer() {
        let fake = Fake::serving([not_found("s")]);
        let question = Question::Secret(reference("v1", "Secret", "a", "s"));
        let answer = fake.cluster().read(&question).await;
        assert_eq!(answer, Ok(json!({"exists": false, "keys": [], "digest": null})));
    }

    #[tokio::test]
    async fn secrets_are_read_in_no_other_way() {
        let fake = Fake::serving([]);
        let cluster = fake.cluster();
        let all = Question::Objects(ListQuery {
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

    #[tokio::test]
    async fn a_digest_tells_secrets_apart_and_means_nothing_elsewhere() {
        let one = digest_of([secret(json!({"a": "bc"})), key()]).await;
        assert_eq!(one, digest_of([secret(json!({"a": "bc"})), key()]).await);
        assert_ne!(one, digest_of([secret(json!({"ab": "c"})), key()]).await);
        assert_ne!(one, digest_of([secret(json!({"a": "bd"})), key()]).await);
        let elsewhere = secret(json!({"key": STANDARD.encode("another installation")}));
        assert_ne!(one, digest_of([secret(json!({"a": "bc"})), elsewhere]).await);
    }

    #[tokio::test]
    async fn the_key_of_an_installation_is_made_once_and_by_one_host() {
        let made = Reply::json(201, json!({"data": {"key": STANDARD.encode("fresh")}}));
        let fake = Fake::serving([secret(json!({})), not_found("k"), made, secret(json!({}))]);
        let question = Question::Secret(reference("v1", "Secret", "a", "s"));
        let cluster = fake.cluster();
        let first = cluster.read(&question).await.expect("an answer");
        assert_eq!(cluster.read(&question).await.expect("an answer"), first);
        let seen = fake.seen();
        assert_eq!(
            seen[1].path,
            "/api/v1/namespaces/polity-system/secrets/polity-installation"
        );
        let drawn = STANDARD.decode(seen[2].body["data"]["key"].as_str().unwrap_or_default());
        assert_eq!(drawn.map(|key| key.len()), Ok(32));

        let lost = refusal(409, "AlreadyExists", "k");
        let fake = Fake::serving([secret(json!({})), not_found("k"), lost, key()]);
        assert!(fake.cluster().read(&question).await.is_ok());
    }
}
