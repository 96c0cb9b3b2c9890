//! Secrets: what a policy may know of them, values for clouds, and tokens that the host mints.
//!
//! # Guarantees
//!
//! - A value leaves this file only through [`Cluster::secret_values`]. The host calls it to unseal the values
//!   that a cloud is sent.

use std::collections::BTreeMap;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polity_core::contract::{Answer, Code, Failure, ObjectRef};
use polity_core::grants::MINTED;
use polity_core::time::{Unix, millis};
use polity_kube_rules::{names::LONGEST_LABEL, time::rfc3339};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout};

use crate::error::Verb;
use crate::path::core_object;
use crate::read::{PAGE, Page};
use crate::request::{named, until};
use crate::{Cluster, LONGEST};

/// The entry of the installation's Secret that holds its key.
const KEY: &str = "key";
/// The entry of a minted Secret that holds the token.
const TOKEN: &str = "token";
/// The label that holds the owner of a token: the uid of the primary for which it was minted.
const OWNER: &str = "polity.dev/minted-for";
/// The annotation that says when a token expires, in Unix milliseconds.
const EXPIRES: &str = "polity.dev/expires";
/// The longest lifetime of a token, whatever is granted. A policy that needs a token for longer mints another
/// one.
const LONGEST_TTL: Duration = Duration::from_hours(24);
/// The most valid tokens of one owner, if no grant says otherwise. A cluster of some hundred machines joins
/// them a few at a time.
const TOKENS: usize = 128;
/// The most tokens that one mint looks at to remove expired ones.
const SWEPT: usize = 100;
/// The longest time that one mint spends on removing expired tokens. Most of its time is for the new token.
const SWEEP: Duration = Duration::from_secs(2);

/// A token that a policy wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// `bootstrap-token`, with which a node joins this cluster, or `password`.
    pub kind: &'a str,
    /// For bootstrap tokens: the groups of the node that joins, in addition to `system:bootstrappers`.
    pub groups: &'a [String],
    /// The lifetime.
    pub ttl: Duration,
    /// The uid of the primary that the token is for.
    pub owner: &'a str,
}

/// How much a grant allows its policy to mint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MintLimits {
    /// The longest lifetime of a token; at most one day.
    pub longest_ttl: Duration,
    /// The most valid tokens that one owner may have at the same time.
    pub count: usize,
}

impl Default for MintLimits {
    fn default() -> Self {
        MintLimits {
            longest_ttl: LONGEST_TTL,
            count: TOKENS,
        }
    }
}

/// The content of a Secret.
pub struct SecretValues {
    /// The digest that [`Question::Secret`](polity_core::contract::Question::Secret) answers.
    pub digest: String,
    /// Decoded values by key.
    pub values: BTreeMap<String, Vec<u8>>,
}

impl Cluster {
    /// The values of a Secret. Only the code that unseals values for a cloud may call this.
    ///
    /// A name that begins with [`MINTED`] names a token that the host [minted](Cluster::mint). It is answered
    /// only if `owner` is the uid of the primary for which it was minted.
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
        let found = until(end, Verb::Get, &what, self.get(&reference)).await;
        let found = match (minted, found) {
            (None, found) => found?,
            (Some(_), Ok(found)) if found["metadata"]["labels"][OWNER] == *owner => found,
            // The same answer whether the token belongs to somebody else or does not exist. Otherwise a
            // policy could find out which Secrets stand in the host's namespace.
            (Some(name), Ok(_)) => return Err(not_minted(name)),
            (Some(name), Err(failure)) if failure.code == Code::NotFound => return Err(not_minted(name)),
            (Some(_), Err(failure)) => return Err(failure),
        };
        let key = self.installation_secret().await?;
        let mut values = BTreeMap::new();
        for (name, value) in found["data"].as_object().into_iter().flatten() {
            let value = STANDARD.decode(value.as_str().unwrap_or_default());
            let value = value.map_err(|_| {
                Failure::new(
                    Code::DataLoss,
                    format!("{what}: the value of {name:?} is not base64"),
                )
            })?;
            values.insert(name.clone(), value);
        }
        Ok(SecretValues {
            digest: digest(key, &reference, &entries(&found)),
            values,
        })
    }

    /// Mints a token and answers a sealed reference to it. The token stands in a Secret beside the host's
    /// lease. Once it has expired, the cluster refuses a bootstrap token, and a later mint removes the
    /// Secret.
    ///
    /// # Errors
    /// `invalid-argument` if the lifetime is longer than the limits allow, `resource-exhausted` if the owner
    /// already has as many valid tokens as they allow.
    ///
    /// Source of the form of bootstrap tokens:
    /// <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>.
    pub async fn mint(&self, wanted: Wanted<'_>, unix: Unix, limits: MintLimits) -> Answer {
        let Wanted { ttl, owner, .. } = wanted;
        let end = Instant::now() + LONGEST;
        let longest = limits.longest_ttl.min(LONGEST_TTL);
        if ttl > longest {
            let (ttl, longest) = (millis(ttl), millis(longest));
            let message = format!(
                "a token with a lifetime of {ttl} ms is not minted: the longest allowed lifetime is {longest} ms"
            );
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        if owner.len() > LONGEST_LABEL || !owner.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let message = "no token is minted: the uid of the owner is not a valid label value";
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        let expires = unix + ttl;
        let (name, form, entries) = fresh(&wanted, expires)?;
        let what = "a minted token";
        let counted = until(end, Verb::Get, what, self.count_minted(owner, unix, limits.count));
        if counted.await? >= limits.count {
            let count = limits.count;
            let message = format!(
                "this object has {count} valid tokens, as many as its grant allows: revoke one or wait until one expires"
            );
            return Err(Failure::new(Code::ResourceExhausted, message));
        }
        let _ = timeout(SWEEP, self.sweep(unix)).await;
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": form, "stringData": entries,
            "metadata": {
                "name": name, "namespace": self.lease.0, "labels": {OWNER: owner},
                "annotations": {EXPIRES: expires.0.to_string()},
            },
        });
        until(end, Verb::Create, what, self.create(&object, &[])).await?;
        Ok(json!({"$secret": {"name": format!("{MINTED}{name}"), "key": TOKEN}}))
    }

    /// Revokes a token that was minted for this owner, by removing its Secret. Answers the token's value;
    /// `None` if the token is gone already. The simulation needs the value, because it plays the cluster that
    /// would accept the token.
    ///
    /// # Errors
    /// `not-found` for a token that was minted for another owner.
    pub async fn revoke(&self, name: &str, owner: &str) -> Result<Option<String>, Failure> {
        let end = Instant::now() + LONGEST;
        let name = name.strip_prefix(MINTED).ok_or_else(|| not_minted(name))?;
        let reference = core_object("Secret", Some(&self.lease.0), name);
        let what = named(&reference);
        let found = match until(end, Verb::Get, &what, self.get(&reference)).await {
            Err(failure) if failure.code == Code::NotFound => return Ok(None),
            found => found?,
        };
        if found["metadata"]["labels"][OWNER] != *owner {
            return Err(not_minted(name));
        }
        let value = found["data"][TOKEN]
            .as_str()
            .and_then(|value| STANDARD.decode(value).ok());
        let value = value.and_then(|value| String::from_utf8(value).ok());
        let options = json!({"preconditions": {"uid": found["metadata"]["uid"]}});
        match until(
            end,
            Verb::Delete,
            &what,
            self.delete(&reference, options.to_string()),
        )
        .await
        {
            Err(failure) if failure.code != Code::NotFound => Err(failure),
            _ => Ok(value),
        }
    }

    /// The number of this owner's valid tokens, counted up to `most`.
    async fn count_minted(&self, owner: &str, unix: Unix, most: usize) -> Result<usize, Failure> {
        let (mut count, mut next) = (0, None);
        let selector = format!("{OWNER}={owner}");
        loop {
            let page = self.minted(&selector, PAGE, next.as_deref()).await?;
            count += page
                .objects
                .iter()
                .filter(|secret| expires(secret) > unix)
                .count();
            next = page.next;
            if count >= most || next.is_none() {
                return Ok(count);
            }
        }
    }

    /// Removes expired tokens: each mint looks at one page of all tokens, and the next mint at the page after
    /// it. A token that cannot be removed now is removed in a later round.
    async fn sweep(&self, unix: Unix) {
        let from = self.swept().take();
        let Ok(page) = self.minted(OWNER, SWEPT, from.as_deref()).await else {
            // The server may have forgotten the `continue` token. `take` above has cleared it, so the next
            // sweep begins at the first token.
            return;
        };
        let over = page.objects.into_iter().filter(|secret| expires(secret) <= unix);
        for secret in over {
            let object = polity_core::object::Object::new(secret);
            let options = json!({"preconditions": {"uid": object.uid()}});
            let _ = self.delete(&object.reference(), options.to_string()).await;
        }
        *self.swept() = page.next;
    }

    /// One page of the minted tokens that the selector matches.
    async fn minted(&self, selector: &str, size: usize, from: Option<&str>) -> Result<Page<Value>, Failure> {
        let kind = core_object("Secret", None, "").kind;
        let mut pairs = vec![("labelSelector", selector)];
        pairs.extend(from.map(|token| ("continue", token)));
        self.page(&kind, Some(&self.lease.0), "minted tokens", Some(size), &pairs)
            .await
    }

    fn swept(&self) -> MutexGuard<'_, Option<String>> {
        self.swept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a policy may know of a Secret: `{exists, keys, digest}`.
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
        Ok(json!({"exists": true, "keys": keys, "digest": digest(key, secret, &entries)}))
    }

    async fn installation_secret(&self) -> Result<&Vec<u8>, Failure> {
        let key = self.installation.get_or_try_init(|| self.installation_key());
        key.await
    }

    /// The key in this installation's own Secret, which is created if it is missing. Every replica and every
    /// start uses the same key, and nobody else knows it.
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
                    // Another replica created the Secret first: its key is the one.
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
                let message = format!(
                    "{} has no entry {KEY:?}: restore it, or delete the Secret and the host makes a new key",
                    named(&reference)
                );
                Err(Failure::new(Code::DataLoss, message))
            }
        }
    }
}

/// When a minted token expires. If that cannot be read, it never does: no token is removed on a guess.
fn expires(secret: &Value) -> Unix {
    let at = secret["metadata"]["annotations"][EXPIRES].as_str();
    Unix(at.and_then(|at| at.parse().ok()).unwrap_or(u64::MAX))
}

fn not_minted(name: &str) -> Failure {
    Failure::new(
        Code::NotFound,
        format!("no token {name} was minted for this object"),
    )
}

/// The entries of a Secret, still encoded, sorted by name.
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

/// The name, the type and the entries of a new token.
fn fresh(wanted: &Wanted<'_>, expires: Unix) -> Result<(String, &'static str, Value), Failure> {
    match wanted.kind {
        "bootstrap-token" => {
            let (id, secret) = (letters(6)?, letters(16)?);
            let mut entries = json!({
                TOKEN: format!("{id}.{secret}"), "token-id": id, "token-secret": secret,
                "expiration": rfc3339(expires.0), "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
            });
            if !wanted.groups.is_empty() {
                entries["auth-extra-groups"] = wanted.groups.join(",").into();
            }
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
        kind => {
            let message =
                format!("tokens of kind {kind:?} are not minted: the kinds are bootstrap-token and password");
            Err(Failure::new(Code::Unimplemented, message))
        }
    }
}

/// Random letters and digits. All 32 are equally likely, because 32 divides 256.
fn letters(count: usize) -> Result<String, Failure> {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bytes = random()?;
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(byte % 32)]);
    Ok(bytes.iter().take(count).map(letter).collect())
}

/// SHA-256 of the key, the Secret's namespace and name, and its entries, each with its length before it.
/// Namespace and name are part of it so that equal Secrets of two tenants have different digests. The lengths
/// make sure that two different Secrets are different inputs.
///
/// A credential plan names a Secret by its digest, so only a policy that was answered the digest can use the
/// Secret. HMAC would add protection against extending a digest; an extended digest belongs to no Secret, so
/// HMAC is not needed.
fn digest(key: &[u8], secret: &ObjectRef, entries: &[(&str, &str)]) -> String {
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    add(key);
    add(secret.namespace.as_deref().unwrap_or_default().as_bytes());
    add(secret.name.as_bytes());
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
        _ => Err(Failure::new(
            Code::Internal,
            "the operating system returned no random bytes",
        )),
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
        for (namespace, name) in [("b", "s"), ("a", "t"), ("as", "")] {
            let fake = Fake::serving([secret(json!({"a": "bc"})), key()]);
            let elsewhere = fake.cluster().secret_values(Some(namespace), name, "").await;
            let elsewhere = elsewhere.map(|found| found.digest);
            assert_ne!(elsewhere.ok().as_deref(), one.as_str(), "{namespace}/{name}");
        }
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
        let fake = Fake::serving([none(), Reply::json(200, list), done(), done()]);
        let answer = mint(&fake.cluster(), 500, 1_000, MintLimits::default()).await;
        let seen = fake.seen();
        assert_eq!(
            seen[0].path,
            "/api/v1/namespaces/polity-system/secrets?limit=500&labelSelector=polity.dev%2Fminted-for%3Duid-1"
        );
        assert_eq!(seen[2].path, "/api/v1/namespaces/polity-system/secrets/old");
        let made = &seen[3].body;
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

    fn none() -> Reply {
        Reply::json(200, json!({"metadata": {}, "items": []}))
    }

    fn wanted(kind: &str, ttl: Duration) -> Wanted<'_> {
        Wanted {
            kind,
            groups: &[],
            ttl,
            owner: "uid-1",
        }
    }

    async fn mint(cluster: &Cluster, ttl: u64, unix: u64, limits: MintLimits) -> Answer {
        let wanted = wanted("bootstrap-token", Duration::from_millis(ttl));
        cluster.mint(wanted, Unix(unix), limits).await
    }

    #[tokio::test]
    async fn a_bootstrap_token_is_of_the_groups_that_its_grant_names_and_of_no_others() {
        let groups = [
            "system:bootstrappers:a".to_owned(),
            "system:bootstrappers:b".to_owned(),
        ];
        for (groups, written) in [
            (&[][..], Value::Null),
            (&groups, json!("system:bootstrappers:a,system:bootstrappers:b")),
        ] {
            let fake = Fake::serving([none(), none(), Reply::json(201, json!({}))]);
            let wanted = Wanted {
                groups,
                ..wanted("bootstrap-token", Duration::from_millis(500))
            };
            let made = fake
                .cluster()
                .mint(wanted, Unix(1_000), MintLimits::default())
                .await;
            assert!(made.is_ok(), "{made:?}");
            assert_eq!(fake.seen()[2].body["stringData"]["auth-extra-groups"], written);
        }
    }

    #[tokio::test]
    async fn a_token_is_revoked_for_its_owner_only_and_one_that_is_gone_is_revoked() {
        let minted = |owner: &str| {
            let metadata =
                json!({"name": "t", "namespace": "polity-system", "uid": "u", "labels": {OWNER: owner}});
            Reply::json(
                200,
                json!({"metadata": metadata, "data": {TOKEN: STANDARD.encode("value")}}),
            )
        };
        let fake = Fake::serving([minted("uid-1"), Reply::json(200, json!({}))]);
        let revoked = fake.cluster().revoke("minted:t", "uid-1").await;
        assert_eq!(revoked, Ok(Some("value".to_owned())));
        assert_eq!(
            fake.paths()[1],
            "DELETE /api/v1/namespaces/polity-system/secrets/t"
        );
        assert_eq!(fake.seen()[1].body["preconditions"]["uid"], "u");

        let fake = Fake::serving([not_found("t")]);
        assert_eq!(fake.cluster().revoke("minted:t", "uid-1").await, Ok(None));
        let fake = Fake::serving([minted("uid-1"), not_found("t")]);
        assert!(fake.cluster().revoke("minted:t", "uid-1").await.is_ok());

        let fake = Fake::serving([minted("uid-2")]);
        let foreign = fake.cluster().revoke("minted:t", "uid-1").await;
        assert_eq!(foreign.map_err(|failure| failure.code), Err(Code::NotFound));
        assert_eq!(fake.seen().len(), 1, "it stays");
        let fake = Fake::serving([]);
        assert!(fake.cluster().revoke("t", "uid-1").await.is_err());
    }

    #[tokio::test]
    async fn no_token_is_of_use_for_longer_than_a_day_or_than_its_grant_says() {
        let hour = MintLimits {
            longest_ttl: Duration::from_hours(1),
            ..MintLimits::default()
        };
        let ever = MintLimits {
            longest_ttl: Duration::MAX,
            ..MintLimits::default()
        };
        for (ttl, limits) in [
            (u64::MAX, ever),
            (millis(LONGEST_TTL) + 1, ever),
            (3_600_001, hour),
        ] {
            let fake = Fake::serving([]);
            let failure = mint(&fake.cluster(), ttl, u64::MAX - 1, limits)
                .await
                .expect_err("too long");
            assert_eq!(failure.code, Code::InvalidArgument);
            assert!(
                failure.message.contains("the longest allowed lifetime"),
                "{failure}"
            );
            assert!(fake.seen().is_empty());
        }
        // A clock near the largest time must not overflow.
        let fake = Fake::serving([none(), none(), Reply::json(201, json!({}))]);
        assert!(mint(&fake.cluster(), 1_000, u64::MAX, ever).await.is_ok());
    }

    #[tokio::test]
    async fn an_owner_has_so_many_tokens_that_are_of_use_and_no_more() {
        let owned = |expires: &[&str], token: &str| {
            let secret = |at: &&str| json!({"metadata": {"name": "t", "annotations": {EXPIRES: at}}});
            let items: Vec<Value> = expires.iter().map(secret).collect();
            Reply::json(200, json!({"metadata": {"continue": token}, "items": items}))
        };
        let two = MintLimits {
            count: 2,
            ..MintLimits::default()
        };
        let fake = Fake::serving([owned(&["500", "5000"], "page-2"), owned(&["6000"], "")]);
        let failure = mint(&fake.cluster(), 500, 1_000, two).await.expect_err("two are");
        assert_eq!(failure.code, Code::ResourceExhausted);
        assert!(fake.paths()[1].ends_with("continue=page-2"), "{:?}", fake.paths());

        let fake = Fake::serving([owned(&["500", "5000"], ""), none(), Reply::json(201, json!({}))]);
        assert!(mint(&fake.cluster(), 500, 1_000, two).await.is_ok());
    }

    #[tokio::test]
    async fn old_tokens_behind_a_page_of_young_ones_go_too() {
        let page = |names: &[(&str, &str)], token: &str| {
            let secret = |(name, expires): &(&str, &str)| json!({"metadata": {"name": name, "namespace": "polity-system", "uid": name, "annotations": {EXPIRES: expires}}});
            let items: Vec<Value> = names.iter().map(secret).collect();
            Reply::json(200, json!({"metadata": {"continue": token}, "items": items}))
        };
        let done = || Reply::json(200, json!({}));
        let fake = Fake::serving([
            none(),
            page(&[("young", "9000")], "page-2"),
            done(),
            none(),
            page(&[("old", "900")], ""),
            done(),
            done(),
            none(),
            refusal(410, "Expired", "page-2"),
            done(),
        ]);
        let cluster = fake.cluster();
        for _ in 0..3 {
            assert!(mint(&cluster, 500, 1_000, MintLimits::default()).await.is_ok());
        }
        let paths = fake.paths();
        assert!(
            paths[4].contains("limit=100&") && paths[4].ends_with("&continue=page-2"),
            "{paths:#?}"
        );
        assert_eq!(paths[5], "DELETE /api/v1/namespaces/polity-system/secrets/old");
        assert!(
            paths[8].contains("limit=100&") && !paths[8].contains("continue"),
            "{paths:#?}"
        );
    }

    #[tokio::test]
    async fn what_is_not_known_is_not_minted() {
        let fake = Fake::serving([]);
        let limits = MintLimits::default();
        let wanted = wanted("crown", Duration::from_millis(500));
        let answer = fake.cluster().mint(wanted, Unix(1_000), limits).await;
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
        assert_eq!(other.err(), Some(not_minted("t")));
        let absent = Fake::serving([not_found("t")]).cluster();
        let absent = absent.secret_values(Some("team"), "minted:t", "uid-2").await;
        assert_eq!(
            absent.err(),
            Some(not_minted("t")),
            "whether there is one is not told"
        );
        let own = cluster.secret_values(Some("team"), "minted:t", "uid-1").await;
        let own = own.expect("the owner's");
        assert_eq!(own.values["token"], b"a.b");
        assert_eq!(fake.paths()[0], "GET /api/v1/namespaces/polity-system/secrets/t");
    }
}
