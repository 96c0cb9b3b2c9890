//! Secrets: what a policy may know of them, what only clouds get, and tokens that the host makes.
//!
//! # Guarantees
//!
//! - A value leaves this file only by [`Cluster::secret_values`], which the host calls to unseal what a cloud is told.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polity_core::contract::{Answer, Code, Failure, Kind, ObjectRef};
use polity_core::grants::MINTED;
use polity_core::time::rfc3339;
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::error::Verb;
use crate::read::PAGE;
use crate::request::{named, until};
use crate::{Cluster, LONGEST};

/// The entry of the installation's Secret.
const KEY: &str = "key";
/// The entry of a minted Secret that holds the token.
const TOKEN: &str = "token";
/// Whose token it is: the uid of the primary for which it was made.
const OWNER: &str = "polity.dev/minted-for";
/// Until when it is of use: Unix milliseconds.
const EXPIRES: &str = "polity.dev/expires";

/// What a Secret holds.
pub struct SecretValues {
    /// As [`Question::Secret`](polity_core::contract::Question::Secret) answers it.
    pub digest: String,
    /// By key.
    pub values: BTreeMap<String, Vec<u8>>,
}

impl Cluster {
    /// The values of a Secret, for those who unseal what a cloud is told, and for nobody else.
    ///
    /// A name that a [mint](Cluster::mint) answered is a token of the host, for the primary of that uid alone.
    pub async fn secret_values(
        &self,
        namespace: Option<&str>,
        name: &str,
        owner: &str,
    ) -> Result<SecretValues, Failure> {
        let end = Instant::now() + LONGEST;
        let minted = name.strip_prefix(MINTED);
        let (namespace, name) = match minted {
            Some(minted) => (Some(self.lease.0.as_str()), minted),
            None => (namespace, name),
        };
        let reference = core_object("Secret", namespace, name);
        let what = named(&reference);
        let found = until(end, Verb::Get, &what, self.get(&reference)).await?;
        if minted.is_some() && found["metadata"]["labels"][OWNER] != *owner {
            return Err(Failure::new(Code::NotFound, format!("{what} is not found")));
        }
        let key = self.installation_secret().await?;
        let mut values = BTreeMap::new();
        for (name, value) in found["data"].as_object().into_iter().flatten() {
            let value = STANDARD.decode(value.as_str().unwrap_or_default());
            let value = value.map_err(|_| {
                Failure::new(
                    Code::DataLoss,
                    format!("{what}: its entry {name:?} is not base64"),
                )
            })?;
            values.insert(name.clone(), value);
        }
        Ok(SecretValues {
            digest: digest(key, &entries(&found)),
            values,
        })
    }

    /// Makes a token for the primary of this uid: `bootstrap-token`, with which a node joins this cluster, or
    /// `password`. The answer is a sealed reference. The token stands in a Secret beside the host's lease; after `ttl`
    /// milliseconds it may be removed by whoever makes the next, and a bootstrap token is refused by the cluster.
    ///
    /// Source of the form of bootstrap tokens:
    /// <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>.
    pub async fn mint(&self, kind: &str, ttl: u64, owner: &str, unix: u64) -> Answer {
        let end = Instant::now() + LONGEST;
        let (name, form, entries) = fresh(kind, unix + ttl)?;
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": form, "stringData": entries,
            "metadata": {
                "name": name, "namespace": self.lease.0, "labels": {OWNER: owner},
                "annotations": {EXPIRES: (unix + ttl).to_string()},
            },
        });
        until(end, Verb::Create, "a minted token", async {
            self.sweep(unix).await;
            self.create(&object, &[]).await
        })
        .await?;
        Ok(json!({"$secret": {"name": format!("{MINTED}{name}"), "key": TOKEN}}))
    }

    /// Removes minted tokens whose time is over. What cannot be removed now is removed by the next.
    async fn sweep(&self, unix: u64) {
        let kind = core_object("Secret", None, "").kind;
        let of = [("labelSelector", OWNER), ("limit", PAGE)];
        let Ok(page) = self.page(&kind, Some(&self.lease.0), "minted tokens", &of).await else {
            return;
        };
        for secret in page.objects {
            let expires = secret["metadata"]["annotations"][EXPIRES].as_str();
            if expires
                .and_then(|at| at.parse().ok())
                .is_some_and(|at: u64| at <= unix)
            {
                let object = polity_core::object::Object::new(secret);
                let options = json!({"preconditions": {"uid": object.uid()}});
                let _ = self.delete(&object.reference(), &options).await;
            }
        }
    }

    /// What may be known of a Secret: `{exists, keys, digest}`.
    pub(crate) async fn secret(&self, secret: &ObjectRef) -> Answer {
        let found = match self.get(secret).await {
            Err(failure) if failure.code == Code::NotFound => {
                return Ok(json!({"exists": false, "keys": [], "digest": null}));
            }
            other => other?,
        };
        let key = self.installation_secret().await?;
        let entries = entries(&found);
        let keys: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
        Ok(json!({"exists": true, "keys": keys, "digest": digest(key, &entries)}))
    }

    async fn installation_secret(&self) -> Result<&Vec<u8>, Failure> {
        let key = self.installation.get_or_try_init(|| self.installation_key());
        key.await
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

/// The entries of a Secret in the order of their names, as they are encoded.
fn entries(secret: &Value) -> Vec<(&str, &str)> {
    let data = secret["data"].as_object();
    let mut entries: Vec<(&str, &str)> = data
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    entries.sort_unstable();
    entries
}

/// A name, a type and the entries of a token of this kind.
fn fresh(kind: &str, expires: u64) -> Result<(String, &'static str, Value), Failure> {
    match kind {
        "bootstrap-token" => {
            let (id, secret) = (letters(6)?, letters(16)?);
            let entries = json!({
                TOKEN: format!("{id}.{secret}"), "token-id": id, "token-secret": secret,
                "expiration": rfc3339(expires), "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
            });
            Ok((
                format!("bootstrap-token-{id}"),
                "bootstrap.kubernetes.io/token",
                entries,
            ))
        }
        "password" => {
            let name = format!("polity-password-{}", letters(16)?);
            Ok((name, "Opaque", json!({TOKEN: letters(32)?})))
        }
        _ => {
            let message = format!("{kind:?} is not minted: bootstrap-token and password are");
            Err(Failure::new(Code::Unimplemented, message))
        }
    }
}

/// Random letters and digits, each as likely as the others.
fn letters(count: usize) -> Result<String, Failure> {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bytes = random()?;
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(byte % 32)]);
    Ok(bytes.iter().take(count).map(letter).collect())
}

/// SHA-256 of the key and of everything else with its length before it. The lengths make two different Secrets
/// different inputs. A credential plan names a Secret by its digest, so whoever was not answered it cannot use the
/// Secret; a digest that somebody extends, which is all that HMAC would prevent, is that of no Secret there is.
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

/// A reference to an object of the core group.
pub(crate) fn core_object(kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
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
    use crate::fake::{Fake, Reply, not_found, reference, refusal};
    use polity_core::contract::Question;

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

    #[tokio::test]
    async fn a_minted_token_is_named_by_its_answer_and_the_old_ones_go() {
        let minted = |name: &str, expires: &str| json!({"metadata": {"name": name, "namespace": "polity-system", "uid": name, "annotations": {EXPIRES: expires}}});
        let list = json!({"metadata": {}, "items": [minted("old", "1000"), minted("young", "9000")]});
        let done = || Reply::json(200, json!({}));
        let fake = Fake::serving([Reply::json(200, list), done(), done()]);
        let answer = fake.cluster().mint("bootstrap-token", 500, "uid-1", 1_000).await;
        let seen = fake.seen();
        assert_eq!(seen[1].path, "/api/v1/namespaces/polity-system/secrets/old");
        let made = &seen[2].body;
        let name = made["metadata"]["name"].as_str().expect("a name");
        assert_eq!(
            answer,
            Ok(json!({"$secret": {"name": format!("minted:{name}"), "key": "token"}}))
        );
        let (id, secret) = made["stringData"]["token"]
            .as_str()
            .and_then(|token| token.split_once('.'))
            .expect("a token");
        assert_eq!((id.len(), secret.len()), (6, 16));
        assert_eq!(name, format!("bootstrap-token-{id}"));
        assert_eq!(made["stringData"]["expiration"], "1970-01-01T00:00:01Z");
        assert_eq!(made["metadata"]["labels"][OWNER], "uid-1");
    }

    #[tokio::test]
    async fn what_is_not_known_is_not_minted() {
        let fake = Fake::serving([]);
        let answer = fake.cluster().mint("crown", 500, "uid-1", 1_000).await;
        assert_eq!(answer.map_err(|failure| failure.code), Err(Code::Unimplemented));
        assert!(fake.seen().is_empty());
    }

    #[tokio::test]
    async fn a_minted_token_has_values_for_its_owner_alone() {
        let token = || {
            let metadata = json!({"name": "t", "labels": {OWNER: "uid-1"}});
            Reply::json(200, json!({"metadata": metadata, "data": {"token": "YS5i"}}))
        };
        let fake = Fake::serving([token(), token(), key()]);
        let cluster = fake.cluster();
        let other = cluster.secret_values(Some("team"), "minted:t", "uid-2").await;
        assert_eq!(other.err().map(|failure| failure.code), Some(Code::NotFound));
        let own = cluster.secret_values(Some("team"), "minted:t", "uid-1").await;
        let own = own.expect("the owner's");
        assert_eq!(own.values["token"], b"a.b");
        assert_eq!(fake.paths()[0], "GET /api/v1/namespaces/polity-system/secrets/t");
    }
}
