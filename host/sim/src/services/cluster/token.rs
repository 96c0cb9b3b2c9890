//! Bootstrap tokens: which of them let a machine join. Only digests of them are kept.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Tokens as Required;
use crate::event::Kernel;
use crate::kernel::kept::Table;

/// What is known of tokens, by their digests.
pub(super) struct Tokens {
    required: Required,
    pub(super) known: Table<String, Token>,
}

/// What is known of a token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Token {
    /// The host said that it made it.
    minted: bool,
    /// When it ends, as far as the host said.
    expires: Option<u64>,
    revoked: bool,
}

impl Tokens {
    pub(super) fn new(required: Required) -> Self {
        Tokens {
            required,
            known: Table::default(),
        }
    }

    /// The host has made a token. Made anew, it is valid again.
    pub(super) fn admit(&mut self, kernel: &mut Kernel, token: &Value, ttl_ms: u64) {
        let now = kernel.now();
        self.known
            .retain(|token| token.expires.is_none_or(|expires| expires > now));
        let known = Token {
            minted: true,
            expires: Some(now.saturating_add(ttl_ms)),
            ..Token::default()
        };
        self.known.insert(kernel.digest(token), known);
        kernel.mark_dirty();
    }

    /// A machine is made with this token.
    pub(super) fn take(&mut self, digest: &str) {
        self.known.get_or_default(digest.to_owned());
    }

    /// The host has taken a token back.
    pub(super) fn revoke(&mut self, kernel: &mut Kernel, token: &Value) {
        self.known.get_or_default(kernel.digest(token)).revoked = true;
        kernel.mark_dirty();
    }

    /// The machine that had it is gone. What the host made ends by itself, and is known until then.
    pub(super) fn forget(&mut self, now: u64, digest: &str) {
        let ended = |token: &Token| token.expires.is_none_or(|expires| expires <= now);
        if self.known.get(digest).is_some_and(ended) {
            self.known.remove(digest);
        }
    }

    /// May a machine with this token join now?
    pub(super) fn lets_join(&self, at: u64, token: Option<&str>) -> bool {
        let known = token.and_then(|digest| self.known.get(digest));
        let ended = |token: &Token| token.revoked || token.expires.is_some_and(|expires| at >= expires);
        match self.required {
            Required::Any => !known.is_some_and(ended),
            Required::Minted => known.is_some_and(|token| token.minted && !ended(token)),
        }
    }
}

#[cfg(test)]
mod tests;
