//! What is true in a test's world.

use serde::Serialize;
use serde_json::Value;

use crate::contract::{self, Code, Failure, ListQuery, ObjectRef, Question, Request};
use crate::{Act, Ask};

/// What a request is answered with: JSON, or a failure.
pub type Answer = Result<String, Failure>;

type Responder = Box<dyn FnMut(&Request) -> Option<Answer>>;

/// Answers to requests. The newest fact that answers a request wins.
#[derive(Default)]
pub struct Facts {
    /// The primary's namespace: what typed requests are made in.
    home: Option<String>,
    stated: Vec<(Request, Answer)>,
    responders: Vec<Responder>,
    objects: Vec<Value>,
}

impl Facts {
    pub(crate) fn in_namespace(home: Option<&str>) -> Self {
        Facts {
            home: home.map(str::to_owned),
            ..Facts::default()
        }
    }

    /// This ask, in round 0, has this answer.
    pub fn answers<A: Ask>(&mut self, ask: A, answer: impl Serialize) -> &mut Self {
        self.state_ask(ask, Ok(json(answer)))
    }

    /// This ask, in round 0, fails.
    pub fn fails<A: Ask>(&mut self, ask: A, failure: Failure) -> &mut Self {
        self.state_ask(ask, Err(failure))
    }

    /// What this ask is for definitely does not exist.
    pub fn lacks<A: Ask>(&mut self, ask: A) -> &mut Self {
        self.fails(ask, Failure::new(Code::NotFound, "not found"))
    }

    /// This act succeeds with this answer.
    pub fn performs<A: Act>(&mut self, act: A, answer: impl Serialize) -> &mut Self {
        let act = act.act(self.home.as_deref());
        self.state(Request::Act(act), Ok(json(answer)))
    }

    /// This act fails.
    pub fn refuses<A: Act>(&mut self, act: A, failure: Failure) -> &mut Self {
        let act = act.act(self.home.as_deref());
        self.state(Request::Act(act), Err(failure))
    }

    /// Answers whatever `respond` answers, when no stated fact does.
    pub fn responds(&mut self, respond: impl FnMut(&Request) -> Option<Answer> + 'static) -> &mut Self {
        self.responders.push(Box::new(respond));
        self
    }

    /// This object of the cluster exists. Asks for objects of its kind are answered from such objects from now on.
    pub fn exists(&mut self, object: impl Serialize) -> &mut Self {
        let object = serde_json::to_value(object).expect("an object has a JSON form");
        let same = |other: &Value| {
            ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"]
                .iter()
                .all(|path| other.pointer(path) == object.pointer(path))
        };
        self.objects.retain(|other| !same(other));
        self.objects.push(object);
        self
    }

    fn state_ask<A: Ask>(&mut self, ask: A, answer: Answer) -> &mut Self {
        let question = ask.question(self.home.as_deref());
        self.state(Request::Ask(contract::Ask { round: 0, question }), answer)
    }

    fn state(&mut self, request: Request, answer: Answer) -> &mut Self {
        self.stated.push((request, answer));
        self
    }

    /// The answer to a request, if a fact gives one.
    pub fn answer(&mut self, request: &Request) -> Option<Answer> {
        if let Some((_, answer)) = self.stated.iter().rev().find(|(stated, _)| stated == request) {
            return Some(answer.clone());
        }
        self.responders
            .iter_mut()
            .rev()
            .find_map(|respond| respond(request))
            .or_else(|| self.stored(request))
    }

    fn stored(&self, request: &Request) -> Option<Answer> {
        let Request::Ask(ask) = request else { return None };
        match &ask.question {
            Question::Object(query) if !self.objects.is_empty() => Some(self.object(&query.object)),
            Question::Objects(query) if !self.objects.is_empty() => Some(self.list(query)),
            _ => None,
        }
    }

    fn object(&self, wanted: &ObjectRef) -> Answer {
        let found = self.objects.iter().find(|object| {
            object["apiVersion"] == wanted.api_version.as_str()
                && object["kind"] == wanted.kind.as_str()
                && object["metadata"]["name"] == wanted.name.as_str()
                && object["metadata"]["namespace"].as_str() == wanted.namespace.as_deref()
        });
        let missing = || {
            Failure::new(
                Code::NotFound,
                format!("{} {} not found", wanted.kind, wanted.name),
            )
        };
        found.map(Value::to_string).ok_or_else(missing)
    }

    fn list(&self, query: &ListQuery) -> Answer {
        let mut found: Vec<&Value> = self
            .objects
            .iter()
            .filter(|object| {
                object["apiVersion"] == query.api_version.as_str()
                    && object["kind"] == query.kind.as_str()
                    && query
                        .namespace
                        .as_deref()
                        .is_none_or(|ns| object["metadata"]["namespace"] == ns)
                    && query
                        .label_selector
                        .as_deref()
                        .is_none_or(|selector| labels_match(object, selector))
                    && query
                        .field_selector
                        .as_deref()
                        .is_none_or(|selector| fields_match(object, selector))
            })
            .collect();
        found.sort_by_key(|object| {
            let name = |field| object["metadata"][field].as_str().unwrap_or("").to_owned();
            (name("namespace"), name("name"))
        });
        if query.limit > 0 && found.len() > query.limit as usize {
            let message = format!("more than {} objects", query.limit);
            return Err(Failure::new(Code::ResourceExhausted, message));
        }
        Ok(json(found))
    }
}

/// `a=b,c!=d,e,!f`. The kit knows no sets: state those asks' answers.
fn labels_match(object: &Value, selector: &str) -> bool {
    let label = |key: &str| object["metadata"]["labels"][key].as_str();
    selector.split(',').map(str::trim).all(|term| {
        assert!(
            !term.contains(" in ") && !term.contains("notin"),
            "the kit's object store knows no sets: {term}"
        );
        if let Some((key, value)) = term.split_once("!=") {
            label(key) != Some(value)
        } else if let Some((key, value)) = term.split_once('=') {
            label(key) == Some(value.trim_start_matches('='))
        } else if let Some(key) = term.strip_prefix('!') {
            label(key).is_none()
        } else {
            label(term).is_some()
        }
    })
}

fn fields_match(object: &Value, selector: &str) -> bool {
    selector.split(',').all(|term| {
        let (path, value) = term.split_once('=').unwrap_or((term, ""));
        let pointer = format!("/{}", path.trim().replace('.', "/"));
        object.pointer(&pointer).and_then(Value::as_str) == Some(value.trim_start_matches('='))
    })
}

fn json(answer: impl Serialize) -> String {
    serde_json::to_string(&answer).expect("an answer has a JSON form")
}
