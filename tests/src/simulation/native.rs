//! Policies as plain Rust functions over the types of the contract. They do what no shipped policy does, such as
//! changes of other objects, locks and verdicts.

use std::collections::{BTreeMap, BTreeSet};

use polity_core::contract::{
    Act, Answer, Ask, CloudAct, CloudCall, Conclusion, Event, Failure, Json, Kind, ListQuery, Next,
    ObjectQuery, ObjectRef, Pass, Question, Request, RetryClass, Step, Verdict,
};
use polity_core::fault::StepOutput;
use polity_core::merge;
use serde_json::{Value, json};

/// The journal does not hold it yet.
pub struct Pending(Vec<Request>);

/// What a native policy sees and does in one step.
pub struct Cx<'a> {
    /// The pass.
    pub pass: &'a Pass,
    /// The primary; edits of it become the patch.
    pub object: Value,
    /// When to look again, unless the policy fails.
    pub events: Vec<Event>,
    /// Edge ids.
    pub notes: Vec<String>,
    /// For identity policies.
    pub verdict: Option<Verdict>,
    used: BTreeSet<u32>,
    acts: BTreeMap<Act, usize>,
}

impl Cx<'_> {
    /// Asks.
    pub fn ask(&mut self, question: Question) -> Result<Answer, Pending> {
        let request = Request::Ask(Ask { round: 0, question });
        self.nth(request, 0)
    }

    /// Asks a cloud.
    pub fn cloud(&mut self, operation: &str, arguments: Value) -> Result<Answer, Pending> {
        self.ask(Question::Cloud(CloudCall {
            operation: operation.into(),
            arguments: text(&arguments).into(),
        }))
    }

    /// Asks for one object, as a watch shows it.
    pub fn object(&mut self, api: &str, kind: &str, namespace: &str, name: &str) -> Result<Answer, Pending> {
        let kind = Kind {
            api_version: api.into(),
            kind: kind.into(),
        };
        let object = ObjectRef {
            cluster: None,
            kind,
            namespace: Some(namespace.into()),
            name: name.into(),
        };
        self.ask(Question::Object(ObjectQuery {
            object,
            projection: Vec::new(),
            latest: false,
        }))
    }

    /// Asks for the objects of a query.
    pub fn list(&mut self, query: ListQuery) -> Result<Result<Vec<Value>, Failure>, Pending> {
        let answer = self.ask(Question::Objects(query))?;
        Ok(answer.map(|list| list.as_array().cloned().unwrap_or_default()))
    }

    /// Whether the primary is being deleted.
    pub fn is_deleting(&self) -> bool {
        !self.object["metadata"]["deletionTimestamp"].is_null()
    }

    /// Lets go of the primary.
    pub fn remove_finalizer(&mut self, finalizer: &str) {
        if let Some(all) = self.object["metadata"]["finalizers"].as_array_mut() {
            all.retain(|held| held != finalizer);
        }
    }

    /// A field of the policy's configuration.
    pub fn config(&self, field: &str) -> Value {
        let config: Value = serde_json::from_str(&self.pass.config).unwrap_or_default();
        config[field].clone()
    }

    /// Does all of this in one step.
    pub fn all(&mut self, acts: Vec<Act>) -> Result<Vec<Answer>, Pending> {
        let (mut answers, mut missing) = (Vec::new(), Vec::new());
        for act in acts {
            match self.act(act) {
                Ok(answer) => answers.push(answer),
                Err(Pending(requests)) => missing.extend(requests),
            }
        }
        if missing.is_empty() {
            Ok(answers)
        } else {
            Err(Pending(missing))
        }
    }

    /// Acts.
    pub fn act(&mut self, act: Act) -> Result<Answer, Pending> {
        let nth = self.acts.entry(act.clone()).or_default();
        *nth += 1;
        let nth = *nth - 1;
        self.nth(Request::Act(act), nth)
    }

    /// Acts in a cloud.
    pub fn change(
        &mut self,
        operation: &str,
        arguments: Value,
        intent: Option<&str>,
    ) -> Result<Answer, Pending> {
        self.act(Act::Cloud(CloudAct {
            operation: operation.into(),
            arguments: text(&arguments).into(),
            intent: intent.map(str::to_owned),
        }))
    }

    fn nth(&mut self, request: Request, nth: usize) -> Result<Answer, Pending> {
        let found = self
            .pass
            .journal
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.request == request)
            .nth(nth);
        let Some((index, entry)) = found else {
            return Err(Pending(vec![request]));
        };
        self.used.insert(index as u32);
        Ok(entry
            .answer
            .clone()
            .map(|json| serde_json::from_str(&json).unwrap_or(Value::Null)))
    }
}

/// `retry(short, failure)`.
pub fn failed(failure: Failure) -> Next {
    Next::Retry {
        class: RetryClass::Short,
        failure: Some(failure),
    }
}

/// Text of a JSON value.
pub fn text(value: &Value) -> Json {
    value.to_string().into()
}

/// One step of a native policy. Each request counts 1,000 fuel, so that recordings have something to show.
pub fn step(pass: &Pass, policy: impl FnOnce(&mut Cx<'_>) -> Result<Next, Pending>) -> StepOutput {
    let parsed = |json: &Json| serde_json::from_str(json).unwrap_or(Value::Null);
    let before: Value = pass.object.as_ref().map_or(Value::Null, parsed);
    let mut cx = Cx {
        pass,
        object: before.clone(),
        events: Vec::new(),
        notes: Vec::new(),
        verdict: None,
        used: BTreeSet::new(),
        acts: BTreeMap::new(),
    };
    let step = match policy(&mut cx) {
        Err(Pending(requests)) => Step::Pending(requests.into_iter().collect()),
        Ok(next) => Step::Concluded {
            verdict: cx.verdict,
            conclusion: Conclusion {
                patch: merge::diff(&before, &cx.object).map(|patch| text(&patch).into()),
                events: cx.events,
                notes: cx.notes,
                next,
                used: cx.used.into_iter().collect(),
            },
        },
    };
    StepOutput {
        outcome: Ok(step),
        fuel: 1_000 + 1_000 * pass.journal.len() as u64,
    }
}

/// The policy of Widgets: `status.seen` is the value of the ConfigMap that `spec.source` names.
pub fn widget(cx: &mut Cx<'_>) -> Result<Next, Pending> {
    let field = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (namespace, source) = (
        field(&cx.object["metadata"]["namespace"]),
        field(&cx.object["spec"]["source"]),
    );
    let seen = match cx.object("v1", "ConfigMap", &namespace, &source)? {
        Ok(map) => field(&map["data"]["value"]),
        Err(failure) if failure.code == polity_core::contract::Code::NotFound => "nothing".to_owned(),
        Err(failure) => return Ok(failed(failure)),
    };
    cx.object["status"]["seen"] = json!(seen);
    cx.object["status"]["observedGeneration"] = cx.object["metadata"]["generation"].clone();
    Ok(Next::Settled(None))
}
