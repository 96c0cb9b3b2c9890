//! Bootstrap tokens, and which of them let a machine join. Only digests of tokens are kept.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::Tokens as Required;
use crate::event::Kernel;
use crate::kernel::kept::Table;

/// The known tokens, by digest.
pub(super) struct Tokens {
    required: Required,
    pub(super) known: Table<String, Token>,
}

/// The state of a token.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Token {
    /// Whether the host minted it.
    minted: bool,
    /// When it expires, as far as the host has told.
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

    /// The host has minted a token. If the token was revoked, it is valid again.
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

    /// A machine is created with this token.
    pub(super) fn take(&mut self, digest: &str) {
        self.known.get_or_default(digest.to_owned());
    }

    /// The host has revoked a token.
    pub(super) fn revoke(&mut self, kernel: &mut Kernel, token: &Value) {
        self.known.get_or_default(kernel.digest(token)).revoked = true;
        kernel.mark_dirty();
    }

    /// The machine with this token is gone. A token that the host minted stays known until it expires.
    pub(super) fn forget(&mut self, now: u64, digest: &str) {
        let ended = |token: &Token| token.expires.is_none_or(|expires| expires <= now);
        if self.known.get(digest).is_some_and(ended) {
            self.known.remove(digest);
        }
    }

    /// Whether a machine with this token may join now.
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
