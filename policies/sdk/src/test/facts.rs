//! The facts of a test's world.

use std::collections::BTreeMap;

use polity_contract::NO_SESSION;
use serde::Serialize;
use serde_json::json;

use crate::contract::{self, Code, Failure, Question, Request};
use crate::{Act, Ask};

use super::cluster::Cluster;

/// The answer to a request: JSON or a failure.
pub type Answer = Result<String, Failure>;

type Responder = Box<dyn FnMut(&Request) -> Option<Answer>>;

/// The answers to requests. The newest fact that answers a request wins.
#[derive(Default)]
pub struct Facts {
    /// The primary's namespace, in which typed requests are made.
    home: Option<String>,
    stated: Vec<(Request, Answer)>,
    responders: Vec<Responder>,
    cluster: Cluster,
}

impl Facts {
    pub(crate) fn in_namespace(home: Option<&str>) -> Self {
        Facts {
            home: home.map(str::to_owned),
            ..Facts::default()
        }
    }

    /// Answers this ask in round 0.
    pub fn answers<A: Ask>(&mut self, ask: A, answer: impl Serialize) -> &mut Self {
        self.state_ask(ask, Ok(written(answer)))
    }

    /// Lets this ask in round 0 fail.
    pub fn fails<A: Ask>(&mut self, ask: A, failure: Failure) -> &mut Self {
        self.state_ask(ask, Err(failure))
    }

    /// Answers this ask with `not-found`.
    pub fn lacks<A: Ask>(&mut self, ask: A) -> &mut Self {
        self.fails(ask, Failure::new(Code::NotFound, "not found"))
    }

    /// Lets this act succeed with this answer.
    pub fn performs<A: Act>(&mut self, act: A, answer: impl Serialize) -> &mut Self {
        let act = act.act(self.home.as_deref());
        self.state(Request::Act(act), Ok(written(answer)))
    }

    /// Lets this act fail.
    pub fn refuses<A: Act>(&mut self, act: A, failure: Failure) -> &mut Self {
        let act = act.act(self.home.as_deref());
        self.state(Request::Act(act), Err(failure))
    }

    /// Uses the answers of `respond` for requests that no other fact answers.
    pub fn responds(&mut self, respond: impl FnMut(&Request) -> Option<Answer> + 'static) -> &mut Self {
        self.responders.push(Box::new(respond));
        self
    }

    /// Adds this object to the cluster. From now on asks for objects are answered from the cluster, and acts
    /// change its objects: see [`Cluster`].
    pub fn exists(&mut self, object: impl Serialize) -> &mut Self {
        self.cluster.put(object);
        self
    }

    /// Adds a Secret with these keys and values to the primary's namespace, or replaces it. A policy is answered
    /// whether it exists, its keys, and a digest that changes with the values.
    pub fn secret<'a>(
        &mut self,
        name: &str,
        values: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> &mut Self {
        let data: BTreeMap<&str, &str> = values.into_iter().collect();
        let metadata = json!({"namespace": self.home, "name": name});
        self.exists(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}))
    }

    /// The other objects of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Shares a cluster with other worlds.
    pub fn join(&mut self, cluster: &Cluster) -> &mut Self {
        self.cluster = cluster.clone();
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
            .or_else(|| self.cluster.answer(request))
            .or_else(|| no_session(request))
    }
}

/// The answer of every host to a credential plan that is `null`.
fn no_session(request: &Request) -> Option<Answer> {
    let Request::Ask(ask) = request else { return None };
    let is_asked = matches!(&ask.question, Question::Credential(plan) if plan == "null");
    is_asked.then(|| {
        Ok(written(
            json!({"handle": NO_SESSION, "reused": false, "attributes": null}),
        ))
    })
}

fn written(answer: impl Serialize) -> String {
    serde_json::to_string(&answer).expect("an answer has a JSON form")
}
