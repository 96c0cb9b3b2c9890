//! Requests in the contract's form, which a test writes down for a policy to make.

use polity_sdk::contract::{
    Act, CloudAct, CloudCall, Eviction, ListQuery, Mint, ObjectCreate, ObjectDelete, ObjectPatch,
    ObjectQuery, ObjectRef, Precondition, Question,
};
use polity_sdk::prelude::*;
use serde_json::Value;

/// The annotation that holds them: a JSON list.
const ANNOTATION: &str = "wishes";

/// One request.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Wish {
    Object(Named),
    Latest(Named),
    Objects(Named),
    Secret(Named),
    Cloud(Operation),
    Lock(String),
    Credential(Value),
    Act(Operation),
    Create(Value),
    Patch(Change),
    Delete(Change),
    Evict(Change),
    Mint(String),
    /// The answer of a mint.
    Revoke(Value),
    Reachable(Option<String>),
}

/// An object; without a name the objects of a kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Named {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    #[serde(default)]
    name: String,
}

/// An operation of a cloud. With an intent it is a create.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operation {
    operation: String,
    arguments: Value,
    intent: Option<String>,
}

/// A change of another object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Change {
    object: Named,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    patch: Value,
    subresource: Option<String>,
}

/// Makes every request in the object's annotation, one after another, and notes each result: `ok` or the
/// code.
pub(crate) async fn make<T: Kind, C>(cx: &Context<T, C>) {
    let text = cx.object().metadata().annotations.get(ANNOTATION);
    let wishes: Vec<Wish> =
        serde_json::from_str(text.map_or("[]", String::as_str)).expect("a list of wishes");
    for wish in wishes {
        let answer = wish.make(cx).await;
        cx.note(answer.map_or_else(|failure| failure.code.as_str(), |_| "ok"));
    }
}

impl Wish {
    async fn make<T: Kind, C>(self, cx: &Context<T, C>) -> Result<Value, Failure> {
        let question = match self {
            Wish::Object(object) => object.query(false),
            Wish::Latest(object) => object.query(true),
            Wish::Objects(kind) => kind.list(),
            Wish::Secret(secret) => Question::Secret(secret.into()),
            Wish::Lock(name) => Question::Lock(name),
            Wish::Credential(plan) => Question::Credential(plan.to_string()),
            Wish::Cloud(call) => Question::Cloud(CloudCall {
                operation: call.operation,
                arguments: call.arguments.to_string(),
            }),
            Wish::Act(act) => return cx.act(act.into_act()).await,
            Wish::Create(object) => return cx.act(creation(&object)).await,
            Wish::Patch(change) => return cx.act(change.patch()).await,
            Wish::Delete(change) => return cx.act(change.delete()).await,
            Wish::Evict(change) => return cx.act(change.evict()).await,
            Wish::Mint(kind) => return cx.act(minting(kind)).await,
            Wish::Revoke(token) => return cx.act(Act::Revoke(token.to_string())).await,
            Wish::Reachable(cluster) => Question::Reachable(cluster),
        };
        cx.ask(question).await
    }
}

fn creation(object: &Value) -> Act {
    Act::Create(ObjectCreate {
        cluster: None,
        object: object.to_string(),
    })
}

fn minting(kind: String) -> Act {
    Act::Mint(Mint {
        cluster: None,
        kind,
        ttl: 60_000,
    })
}

impl Named {
    fn query(self, latest: bool) -> Question {
        Question::Object(ObjectQuery {
            object: self.into(),
            projection: Vec::new(),
            latest,
        })
    }

    fn list(self) -> Question {
        Question::Objects(ListQuery {
            cluster: None,
            page: None,
            api_version: self.api_version,
            kind: self.kind,
            namespace: self.namespace,
            label_selector: None,
            field_selector: None,
            projection: Vec::new(),
            limit: 0,
            latest: false,
        })
    }
}

impl From<Named> for ObjectRef {
    fn from(named: Named) -> ObjectRef {
        ObjectRef {
            cluster: None,
            api_version: named.api_version,
            kind: named.kind,
            namespace: named.namespace,
            name: named.name,
        }
    }
}

impl Operation {
    fn into_act(self) -> Act {
        Act::Cloud(CloudAct {
            operation: self.operation,
            arguments: self.arguments.to_string(),
            intent: self.intent,
        })
    }
}

impl Change {
    fn precondition(&self) -> Precondition {
        Precondition {
            uid: self.uid.clone(),
            resource_version: None,
        }
    }

    fn patch(self) -> Act {
        Act::Patch(ObjectPatch {
            precondition: self.precondition(),
            object: self.object.into(),
            subresource: self.subresource,
            patch: self.patch.to_string(),
        })
    }

    fn delete(self) -> Act {
        Act::Delete(ObjectDelete {
            precondition: self.precondition(),
            object: self.object.into(),
            grace_period_seconds: None,
            propagation_policy: None,
        })
    }

    fn evict(self) -> Act {
        Act::Evict(Eviction {
            precondition: self.precondition(),
            object: self.object.into(),
            grace_period_seconds: None,
        })
    }
}
