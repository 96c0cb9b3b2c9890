//! Bootstrap tokens: which of them let a machine join. Only digests of them are kept.

use polity_core::call::CloudRequest;
use polity_core::contract::Answer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Sim;
use crate::config::Tokens;
use crate::hypervisor::vm::Stamp;
use crate::kernel::call::owned;

/// What is known of a token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Token {
    /// Who was the first to use it.
    stamp: Option<Stamp>,
    /// The host said that it made it.
    minted: bool,
    /// When it ends, as far as the host said.
    expires: Option<u64>,
    revoked: bool,
}

impl Sim {
    /// Tells of a bootstrap token that was made, as it will be in `machine.create`: the value, or where nothing
    /// unseals, the reference. `ttl_ms` is how long it is valid. Made anew, it is valid again.
    pub fn admit_token(&mut self, now_ms: u64, token: &Value, ttl_ms: u64) {
        let now = self.advance(now_ms);
        self.world
            .tokens
            .retain(|token| token.expires.is_none_or(|expires| expires > now));
        let known = Token {
            minted: true,
            expires: Some(now.saturating_add(ttl_ms)),
            ..Token::default()
        };
        self.world
            .tokens
            .insert(digest(self.world.head.seed, token), known);
        self.dirty = true;
    }

    /// Takes the token that a machine is made with; what is kept of it.
    pub(crate) fn take_token(&mut self, request: &CloudRequest) -> Option<String> {
        let arguments = &request.arguments;
        let token = arguments
            .get("bootstrapToken")
            .or_else(|| arguments.get("token"))?;
        let digest = digest(self.world.head.seed, token);
        let stamp = self.stamp(request);
        let token = self.world.tokens.get_or_default(digest.clone());
        token.stamp.get_or_insert(stamp);
        Some(digest)
    }

    pub(crate) fn revoke_token(&mut self, request: &CloudRequest) -> Answer {
        let digest = digest(self.world.head.seed, &request.arguments["token"]);
        let stamp = self.stamp(request);
        let token = self.world.tokens.get_or_default(digest);
        owned(token.stamp.get_or_insert(stamp), &request.session, "the token")?;
        token.revoked = true;
        self.dirty = true;
        Ok(json!({}))
    }

    /// The machine that had it is gone. What the host made ends by itself, and is known until then.
    pub(crate) fn forget_token(&mut self, digest: &str) {
        let now = self.world.head.now;
        let ended = |token: &Token| token.expires.is_none_or(|expires| expires <= now);
        if self.world.tokens.get(digest).is_some_and(ended) {
            self.world.tokens.remove(digest);
        }
    }

    /// May a machine with this token join now?
    pub(crate) fn lets_join(&self, at: u64, token: Option<&str>) -> bool {
        let known = token.and_then(|digest| self.world.tokens.get(digest));
        let ended = |token: &Token| token.revoked || token.expires.is_some_and(|expires| at >= expires);
        match self.config.machines.tokens {
            Tokens::Any => !known.is_some_and(ended),
            Tokens::Minted => known.is_some_and(|token| token.minted && !ended(token)),
        }
    }
}

/// What is kept of a token, in its place.
pub(crate) fn concealed(seed: u64, token: &Value) -> Value {
    json!({DIGEST: digest(seed, token)})
}

/// No argument that passes the catalogue's schema has this field.
const DIGEST: &str = "$digest";

fn digest(seed: u64, token: &Value) -> String {
    if let Some(digest) = token.get(DIGEST).and_then(Value::as_str) {
        return digest.to_owned();
    }
    let digest = Sha256::new_with_prefix(seed.to_le_bytes()).chain_update(token.to_string());
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
