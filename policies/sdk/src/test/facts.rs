//! What is true in a test's world.

use serde::Serialize;

use crate::contract::{self, Code, Failure, Request};
use crate::{Act, Ask};

use super::cluster::Cluster;

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
    cluster: Cluster,
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

    /// This object of the cluster exists. Asks for objects are answered from such objects from now on, and acts are
    /// performed on them: see [`Cluster`].
    pub fn exists(&mut self, object: impl Serialize) -> &mut Self {
        self.cluster.put(object);
        self
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
    }
}

fn json(answer: impl Serialize) -> String {
    serde_json::to_string(&answer).expect("an answer has a JSON form")
}
