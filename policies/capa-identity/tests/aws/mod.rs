//! A small AWS and a small cluster: identities, Secrets, sessions by plan, and what they lead to.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

use polity_sdk::cloud::session::{Link, Plan};
use polity_sdk::contract::{Act, Code, Failure, Question, Request};
use polity_sdk::test::Answer;
use serde_json::{Value, json};

/// Clones are the same AWS.
#[derive(Clone, Default)]
pub struct Aws(Rc<RefCell<State>>);

#[derive(Default)]
pub struct State {
    /// The objects of the cluster, the primaries aside.
    pub objects: Vec<Value>,
    /// Secrets of the controller's namespace, and the digest of each.
    pub secrets: BTreeMap<String, String>,
    /// The account of a role; 111 of everything else.
    pub accounts: BTreeMap<String, String>,
    /// Handles by plan: the host's cache.
    pub sessions: BTreeMap<String, String>,
    /// Calls of the cloud, in order.
    pub calls: Vec<String>,
    /// How the cloud fails for now.
    pub failing: Option<Code>,
    made: usize,
}

impl Aws {
    pub fn state(&self) -> RefMut<'_, State> {
        self.0.borrow_mut()
    }

    /// An object of the cluster, instead of any of its kind and name.
    pub fn put(&self, object: Value) {
        self.remove(
            object["kind"].as_str().unwrap(),
            object["metadata"]["name"].as_str().unwrap(),
        );
        self.state().objects.push(object);
    }

    pub fn remove(&self, kind: &str, name: &str) {
        let is = |object: &Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.state().objects.retain(|object| !is(object));
    }

    /// An identity that every namespace may use.
    pub fn identity(&self, kind: &str, name: &str, spec: Value) {
        let mut spec = spec;
        if spec.get("allowedNamespaces").is_none() {
            spec["allowedNamespaces"] = json!({});
        }
        self.put(json!({
            "apiVersion": "capa.polity.dev/v1alpha1", "kind": kind, "spec": spec,
            "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        }));
    }

    pub fn answer(&self, request: &Request) -> Option<Answer> {
        match request {
            Request::Ask(ask) => match &ask.question {
                Question::Object(query) => {
                    let wanted = &query.object;
                    let state = self.state();
                    let found = state.objects.iter().find(|object| {
                        let metadata = &object["metadata"];
                        object["kind"] == *wanted.kind
                            && metadata["name"] == *wanted.name
                            && metadata["namespace"].as_str() == wanted.namespace.as_deref()
                    });
                    let missing = || Failure::new(Code::NotFound, "not found");
                    Some(found.map(Value::to_string).ok_or_else(missing))
                }
                Question::Secret(secret) => {
                    assert_eq!(secret.namespace.as_deref(), Some("capa-system"));
                    let keys = ["AccessKeyID", "SecretAccessKey"];
                    let facts = match self.state().secrets.get(&secret.name) {
                        Some(digest) => json!({"exists": true, "keys": keys, "digest": digest}),
                        None => json!({"exists": false}),
                    };
                    Some(Ok(facts.to_string()))
                }
                Question::Credential(plan) => Some(self.state().session(plan)),
                _ => None,
            },
            Request::Act(Act::Create(create)) => {
                let mut object: Value = serde_json::from_str(&create.object).unwrap();
                object["metadata"]["uid"] = "uid-made".into();
                self.put(object);
                Some(Ok(r#"{"uid":"uid-made"}"#.to_owned()))
            }
            Request::Act(_) => None,
        }
    }
}

impl State {
    /// As the host does: cached by plan, and nothing is cached that failed.
    fn session(&mut self, text: &str) -> Answer {
        let plan: Plan = serde_json::from_str(text).expect("a plan");
        let reused = self.sessions.contains_key(text);
        if !reused {
            for link in &plan.chain {
                self.calls.push(match link {
                    Link::Secret(secret) => format!("keys of {}", secret.name),
                    Link::Role(role) => format!("assume {}", role.arn),
                    Link::WebIdentity(role) => format!("assume {} for {}", role.arn, role.namespace),
                });
            }
            self.calls.push("caller identity".into());
            if let Some(code) = self.failing {
                return Err(Failure::new(code, "InvalidClientTokenId"));
            }
            self.made += 1;
            self.sessions
                .insert(text.to_owned(), format!("session-{}", self.made));
        }
        let (principal, account) = match plan.chain.last() {
            Some(Link::Role(role)) => (role.arn.clone(), self.accounts.get(&role.arn)),
            _ => ("controller".to_owned(), None),
        };
        let account = account.map_or("111", String::as_str);
        let handle = &self.sessions[text];
        Ok(
            json!({"handle": handle, "reused": reused, "attributes": {"principal": principal, "account": account}})
                .to_string(),
        )
    }
}
