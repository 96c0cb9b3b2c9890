//! Requests to the binding's cloud, by operation; and typed requests of some clouds, in one module for each
//! service.
//!
//! For a cloud without a module here, use [`ask`], [`change`] and [`create`] with types of your own.

pub mod agent;
pub mod machine;
pub mod pool;
pub mod router;
pub mod session;
pub mod vm;

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::contract::{self, CloudAct, CloudCall, Failure, Question};
use crate::request::{self, Act, Ask};

/// Asks by a `read` operation of the cloud's catalogue.
pub fn ask<A: DeserializeOwned>(operation: &str, arguments: &impl Serialize) -> CloudAsk<A> {
    let call = CloudCall {
        operation: operation.to_owned(),
        arguments: request::write(arguments),
    };
    CloudAsk {
        call,
        answer: PhantomData,
    }
}

/// Performs a `change` operation.
pub fn change<A: DeserializeOwned>(operation: &str, arguments: &impl Serialize) -> CloudDo<A> {
    let act = CloudAct {
        operation: operation.to_owned(),
        arguments: request::write(arguments),
        intent: None,
    };
    CloudDo {
        act,
        answer: PhantomData,
    }
}

/// Performs a `create` operation. `intent` names what is created. It must be derivable from the stored object and
/// never come from a counter, so that the same create is recognised after a crash.
pub fn create<A: DeserializeOwned>(operation: &str, intent: &str, arguments: &impl Serialize) -> CloudDo<A> {
    let act = CloudAct {
        operation: operation.to_owned(),
        arguments: request::write(arguments),
        intent: Some(intent.to_owned()),
    };
    CloudDo {
        act,
        answer: PhantomData,
    }
}

/// Asks for credentials, by a plan that names Secrets and roles. For the identity role only.
pub fn credential<A: DeserializeOwned>(plan: &impl Serialize) -> CredentialAsk<A> {
    CredentialAsk {
        plan: request::write(plan),
        attributes: PhantomData,
    }
}

/// Asks for the session that opens no cloud. An identity policy grants it where the lifecycle may act in the cluster
/// alone: in a binding without a cloud, or for objects that must not reach it. Every cloud refuses it.
///
/// It needs neither [`Need::Credential`](crate::Need::Credential) nor a grant.
pub fn no_session() -> CredentialAsk<()> {
    credential(&())
}

/// A `read` operation. See [`ask`].
#[derive(Clone, Debug)]
pub struct CloudAsk<A> {
    call: CloudCall,
    answer: PhantomData<fn() -> A>,
}

impl<A: DeserializeOwned> Ask for CloudAsk<A> {
    type Answer = A;

    fn question(self, _: Option<&str>) -> Question {
        Question::Cloud(self.call)
    }

    fn read(json: &str) -> Result<A, Failure> {
        request::read(json)
    }
}

/// A `change` or `create` operation. See [`change`] and [`create`].
#[derive(Clone, Debug)]
pub struct CloudDo<A> {
    act: CloudAct,
    answer: PhantomData<fn() -> A>,
}

impl<A: DeserializeOwned> Act for CloudDo<A> {
    type Answer = A;

    fn act(self, _: Option<&str>) -> contract::Act {
        contract::Act::Cloud(self.act)
    }

    fn read(json: &str) -> Result<A, Failure> {
        request::read(json)
    }
}

/// A credential plan. See [`credential`].
#[derive(Clone, Debug)]
pub struct CredentialAsk<A> {
    plan: String,
    attributes: PhantomData<fn() -> A>,
}

/// The answer to a credential plan.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub struct Credential<A> {
    /// The name of the session, for the host, in this pass only.
    pub handle: String,
    /// Whether the host had the session already.
    pub reused: bool,
    /// The cloud's attributes of the session, for example [`session::Attributes`].
    pub attributes: A,
}

impl<A: DeserializeOwned> Ask for CredentialAsk<A> {
    type Answer = Credential<A>;

    fn question(self, _: Option<&str>) -> Question {
        Question::Credential(self.plan)
    }

    fn read(json: &str) -> Result<Credential<A>, Failure> {
        request::read(json)
    }
}
