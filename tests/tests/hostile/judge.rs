//! Compares the results of rows with the expected ones.

use polity_core::contract::{Answer, Role};
use polity_core::record::{Outcome, PassRecord};
use polity_tests::host_fixture::{condition_of, reference};
use serde_json::{Value, json};

use crate::hostile::row::{Before, Expect, Row};
use crate::hostile::stage::{CANARY, KEEP, OFFENDERS, PUPPETS, Stage, nothing, pending_entry, puppet};

/// Characters of an Event's message.
const MESSAGE: usize = 1_024;
/// Characters of an Event's reason.
const REASON: usize = 128;

/// Plays rows of a kind, whose policies say what this annotation says; what is wrong with each.
pub(crate) async fn play(stage: &Stage, kind: &str, annotation: &str, rows: &[Row]) -> Vec<String> {
    for row in rows {
        prepare(stage, kind, annotation, row).await;
    }
    let mut seen = Vec::new();
    for row in rows {
        seen.push(begin(stage, kind, annotation, row).await);
    }
    stage.play().await;
    let mut wrong = Vec::new();
    for (row, before) in rows.iter().zip(seen) {
        let mut say = |why: String| wrong.push(format!("{}: {why}", row.name));
        if let Err(why) = came_of(stage, row, before) {
            say(why);
        }
        if let Err(why) = harmless(stage, kind, row).await {
            say(why);
        }
    }
    wrong.extend(unharmed(stage).await);
    wrong
}

/// Brings an object to where its row begins.
async fn prepare(stage: &Stage, kind: &str, annotation: &str, row: &Row) {
    let first = match row.before {
        Before::New => return,
        Before::Quarantined => json!({"Concluded": {"patch": {"$do": "panic"}}}).to_string(),
        Before::Pending | Before::Deleting => nothing(),
    };
    let name = row.object();
    let mut object = puppet(
        kind,
        OFFENDERS,
        &name,
        json!({"answer": nothing(), annotation: first}),
    );
    object["metadata"]["finalizers"] = json!([KEEP]);
    stage.fixture.apply(&object).await;
    stage
        .fixture
        .until(&format!("a first pass of {name}"), async || {
            (!stage.passes(&name).is_empty()).then_some(())
        })
        .await;
    let named = reference(PUPPETS, kind, Some(OFFENDERS), &name);
    match row.before {
        Before::Pending => {
            stage
                .fixture
                .write_status(&named, &json!({"pending": [pending_entry()]}))
                .await
        }
        Before::Deleting => stage.fixture.delete(&named).await,
        Before::Quarantined | Before::New => {}
    }
}

/// Lets the policy say what its row says; how many passes the object had before.
async fn begin(stage: &Stage, kind: &str, annotation: &str, row: &Row) -> usize {
    let name = row.object();
    let annotations =
        json!({"answer": nothing(), annotation: row.says.to_string(), "request.polity.dev/look": "1"});
    let mut object = puppet(kind, OFFENDERS, &name, annotations);
    object["metadata"]["finalizers"] = json!([KEEP]);
    let before = stage.passes(&name).len();
    stage.fixture.apply(&object).await;
    before
}

/// What came of the first pass in which it said it.
fn came_of(stage: &Stage, row: &Row, before: usize) -> Result<(), String> {
    let passes = stage.passes(&row.object());
    let says = |pass: &&PassRecord| {
        let object: Value = pass
            .object
            .as_deref()
            .map(serde_json::from_str)
            .and_then(Result::ok)
            .unwrap_or_default();
        object["metadata"]["annotations"]["request.polity.dev/look"].is_string()
    };
    let Some(pass) = passes.iter().skip(before).find(says) else {
        return Err(format!("no pass, of {} in all", passes.len()));
    };
    let fault = pass.roles.iter().find_map(|role| role.fault.as_ref());
    let told = || {
        format!(
            "{:?}, {fault:?}, next {:?}, answers {:?}",
            pass.outcome,
            pass.next,
            pass.roles
                .iter()
                .flat_map(|role| &role.journal)
                .map(|entry| &entry.answer)
                .collect::<Vec<_>>()
        )
    };
    let holds = match &row.expect {
        Expect::Faulted(kinds) => {
            pass.outcome == Outcome::Faulted && fault.is_some_and(|fault| kinds.contains(&fault.kind))
        }
        Expect::Refused(codes) => match last_answer(pass) {
            Some(Err(failure)) => codes.is_empty() || codes.contains(&failure.code),
            _ => false,
        },
        Expect::Answered => matches!(last_answer(pass), Some(Ok(_))),
        Expect::Published => pass.outcome == Outcome::Published,
        Expect::NotTaken => matches!(pass.outcome, Outcome::Faulted | Outcome::Failed(_)),
        Expect::Ends => true,
        Expect::Denied => {
            pass.outcome == Outcome::Denied && pass.roles.iter().all(|role| role.role == Role::Identity)
        }
        Expect::Paced(most) => pass.outcome == Outcome::Published && passes.len() <= *most,
    };
    if holds {
        Ok(())
    } else {
        Err(format!(
            "expected {:?}, and there is {}; {} passes",
            row.expect,
            told(),
            passes.len()
        ))
    }
}

/// What the last request of a pass was answered.
fn last_answer(pass: &PassRecord) -> Option<Answer> {
    let entry = pass.roles.iter().flat_map(|role| &role.journal).last()?;
    let read = |json: &str| serde_json::from_str(json).unwrap_or_default();
    Some(entry.answer.clone().map(|json| read(&json)))
}

/// Whatever a policy says, what is the host's or somebody else's is as it was, and what people see is bounded.
async fn harmless(stage: &Stage, kind: &str, row: &Row) -> Result<(), String> {
    let name = row.object();
    let object = stage
        .fixture
        .get(&reference(PUPPETS, kind, Some(OFFENDERS), &name))
        .await;
    let ensure = |holds: bool, why: &str| {
        if holds {
            Ok(())
        } else {
            Err(format!("{why}: {object}"))
        }
    };
    let metadata = &object["metadata"];
    let keeps = metadata["finalizers"]
        .as_array()
        .is_some_and(|all| all.iter().any(|f| f == KEEP));
    ensure(keeps, "the finalizer of another is gone")?;
    ensure(metadata["ownerReferences"].is_null(), "it has an owner")?;
    ensure(metadata["name"] == *name, "it has another name")?;
    ensure(
        condition_of(&object, "polity.dev/Forged").is_none(),
        "a condition of the host is forged",
    )?;
    let pending = object["status"]["pending"].to_string();
    ensure(!pending.contains("forged"), "a pending entry is forged")?;
    for (reason, message) in stage.fixture.events_of(&name).await {
        let said = format!("an Event {reason:.200?}: {message:.80?}");
        let bounded = reason.chars().count() <= REASON && message.chars().count() <= MESSAGE;
        ensure(bounded, &format!("{said} is too long"))?;
        ensure(!reason.is_empty() && !reason.chars().any(char::is_control), &said)?;
    }
    let told = format!("{:?}", stage.passes(&name));
    ensure(!told.contains(CANARY), "its passes hold a secret")
}

/// What offenders might have harmed.
async fn unharmed(stage: &Stage) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut ensure = |holds: bool, why: &str, object: &Value| {
        if !holds {
            wrong.push(format!("{why}: {object}"));
        }
    };
    let fixture = &stage.fixture;
    let victim = fixture.get(&stage.puppet("victim")).await;
    let metadata = &victim["metadata"];
    ensure(
        metadata["finalizers"]
            .as_array()
            .is_some_and(|all| all.len() == 2),
        "finalizers of the victim",
        &victim,
    );
    ensure(
        metadata["ownerReferences"].is_null(),
        "owners of the victim",
        &victim,
    );
    ensure(
        metadata["deletionTimestamp"].is_null(),
        "the victim is being deleted",
        &victim,
    );
    ensure(
        condition_of(&victim, "polity.dev/Forged").is_none(),
        "conditions of the victim",
        &victim,
    );
    let pending = victim["status"]["pending"].to_string();
    ensure(
        !pending.contains("forged"),
        "pending entries of the victim",
        &victim,
    );
    let web = fixture.get(&reference("v1", "Pod", Some(OFFENDERS), "web")).await;
    ensure(
        web["spec"]["ephemeralContainers"].is_null(),
        "the Pod runs what nobody asked for",
        &web,
    );
    ensure(
        web["metadata"]["deletionTimestamp"].is_null() && web.is_object(),
        "the Pod is gone",
        &web,
    );
    let told = format!(
        "{:?}{:?}{:?}",
        fixture.site.vms(),
        fixture.site.effects(),
        fixture.site.pool_machines()
    );
    ensure(
        !told.contains(CANARY),
        "the cloud was told a secret",
        &Value::Null,
    );
    wrong
}
