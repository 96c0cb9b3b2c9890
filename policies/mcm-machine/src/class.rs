//! The machine's class and its Secret (MCM-R03 to MCM-R06).

use std::ops::ControlFlow::{self, Break, Continue};

use polity_sdk::prelude::*;

use crate::{Cx, notes};
use mcm_api::{Machine, MachineClass};

/// The condition: the class is there and complete.
const CLASS_VALID: &str = "ClassValid";

/// Validates the machine, its class and the class's Secret. Goes on with the class; without one only where a machine
/// may be deleted without it.
pub(crate) async fn check(
    cx: &Cx,
    machine: &mut Machine,
) -> Result<ControlFlow<Next, Option<MachineClass>>, Failure> {
    let class = &machine.spec.class;
    if class.kind.is_empty() || class.name.is_empty() {
        notes(cx, ["MCM-R04", "MCM-R21"]);
        let failure = Failure::new(Code::InvalidArgument, "spec.class lacks a kind or a name");
        cx.event(EventType::Warning, "InvalidMachine", &failure.message);
        return Ok(Break(Next::failed(RetryClass::Long, failure)));
    }
    cx.note("MCM-R03");
    match load(cx, machine).await? {
        Ok(class) => {
            cx.note("MCM-R06");
            if machine.status.conditions.get(CLASS_VALID).is_some() {
                let conditions = &mut machine.status.conditions;
                conditions.set(cx.now(), CLASS_VALID, ConditionStatus::True, "Valid", "");
            }
            Ok(Continue(Some(class)))
        }
        Err(_) if machine.metadata.deleting() && cx.config().delete_without_class => Ok(Continue(None)),
        Err(problem) => {
            let long = problem.class == RetryClass::Long;
            notes(cx, ["MCM-R05", if long { "MCM-R21" } else { "MCM-R22" }]);
            let failure = Failure::new(problem.code, problem.message);
            let conditions = &mut machine.status.conditions;
            let status = ConditionStatus::False;
            conditions.set(cx.now(), CLASS_VALID, status, problem.reason, &failure.message);
            Ok(Break(Next::failed(problem.class, failure)))
        }
    }
}

/// Why no machine can be made from a class.
struct Problem {
    class: RetryClass,
    code: Code,
    reason: &'static str,
    message: String,
}

impl Problem {
    fn new(code: Code, reason: &'static str, message: String) -> Problem {
        let class = RetryClass::Long;
        Problem {
            class,
            code,
            reason,
            message,
        }
    }
}

/// Loads the class. A failure to look is no problem of the class: the pass fails and is tried again soon.
async fn load(cx: &Cx, machine: &Machine) -> Result<Result<MachineClass, Problem>, Failure> {
    let named = &machine.spec.class;
    let missing = || {
        let message = format!("{} {} does not exist", named.kind, named.name);
        Problem::new(Code::NotFound, "ClassMissing", message)
    };
    if named.kind != MachineClass::KIND {
        return Ok(Err(missing()));
    }
    let Some(class) = cx
        .ask(cluster::object::<MachineClass>(&named.name))
        .await
        .found()?
    else {
        return Ok(Err(missing()));
    };
    let finalizer = &cx.config().class_finalizer;
    if !finalizer.is_empty() && !class.metadata.finalizers.contains(finalizer) {
        let message = format!("MachineClass {} does not carry {finalizer} yet", named.name);
        let problem = Problem::new(Code::FailedPrecondition, "ClassNotReady", message);
        return Ok(Err(Problem {
            class: RetryClass::Short,
            ..problem
        }));
    }
    if class
        .spec
        .node_template
        .as_ref()
        .is_some_and(|t| !t.is_complete())
    {
        let message = format!("the node template of MachineClass {} is not complete", named.name);
        return Ok(Err(Problem::new(
            Code::InvalidArgument,
            "NodeTemplateInvalid",
            message,
        )));
    }
    if let Some(secret) = &class.spec.secret_ref {
        let facts = cx.ask(cluster::secret(&secret.name)).await.found()?;
        let facts = facts.filter(|facts| facts.exists);
        let lacking = cx
            .config()
            .secret_keys
            .iter()
            .find(|key| facts.as_ref().is_none_or(|facts| !facts.keys.contains(key)));
        let message = match (&facts, lacking) {
            (None, _) => format!("Secret {} does not exist", secret.name),
            (Some(_), Some(key)) => format!("Secret {} lacks {key}", secret.name),
            (Some(_), None) => return Ok(Ok(class)),
        };
        return Ok(Err(Problem::new(
            Code::FailedPrecondition,
            "SecretInvalid",
            message,
        )));
    }
    Ok(Ok(class))
}
