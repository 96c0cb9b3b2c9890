//! A call that is still on its way when everybody has given up.

use polity_core::call::{CloudRequest, Session};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::services::cluster::token;

/// Arguments that are values by now, of which a digest is enough.
const TOKENS: [&str; 2] = ["bootstrapToken", "token"];

/// A call that arrives late. Resolved secrets stay out of it: it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Late {
    session: Session,
    operation: String,
    arguments: Value,
    key: Option<String>,
}

impl Late {
    pub(crate) fn new(seed: u64, request: &CloudRequest) -> Self {
        let CloudRequest {
            session,
            operation,
            mut arguments,
            key,
        } = request.clone();
        if let Some(arguments) = arguments.as_object_mut() {
            arguments.remove("userData");
            arguments.remove("certificateKey");
            for name in TOKENS {
                if let Some(value) = arguments.get_mut(name) {
                    *value = token::concealed(seed, value);
                }
            }
        }
        Late {
            session,
            operation,
            arguments,
            key,
        }
    }
}

impl From<Late> for CloudRequest {
    fn from(late: Late) -> Self {
        let Late {
            session,
            operation,
            arguments,
            key,
        } = late;
        CloudRequest {
            session,
            operation,
            arguments,
            key,
        }
    }
}
