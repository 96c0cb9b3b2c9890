//! How machines of pools become nodes: one creates the cluster, and the others join it.

use std::collections::BTreeMap;

use polity_clouds::catalogue::cluster::{INIT, JOIN};
use polity_core::contract::{Answer, Code, Failure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::node::Node;
use super::{Cluster, Context};
use crate::event::{Call, Event};
use crate::kernel::call::TaskError;
use crate::kernel::tasks::Task;

/// A machine that kubeadm can turn into a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    pub(super) node_name: String,
    /// Whether its agent has prepared it.
    pub(super) prepared: bool,
    /// When its present boot has ended; `None` if it is off.
    pub(super) up: Option<u64>,
}

impl Cluster {
    /// Starts work on a machine of a pool. If the same work is under way, the call joins it.
    pub(super) fn submit(&mut self, cx: &mut Context<'_>, call: &Call) -> Answer {
        let id = call.text("machine");
        let vm = cx.vms.visible(&call.caller, id)?;
        let number = vm.number;
        if !vm.exists() || !self.candidates.contains_key(&number) {
            let message = format!("no machine {id:?} in any pool");
            return Err(Failure::new(Code::NotFound, message));
        }
        let takes = match call.operation.as_str() {
            INIT => self.durations.init,
            _ => self.durations.join,
        };
        if let Some(joined) = cx.vms.join(cx.kernel, call, number)? {
            return Ok(joined);
        }
        self.may_register(cx, call, number)?;
        let token = call.arguments.get("token").map(|token| cx.kernel.digest(token));
        let told = json!({
            "labels": call.arguments["labels"], "taints": call.arguments["taints"], "token": token,
        });
        let task = cx.vms.change(cx.kernel, cx.at, call, number, (takes, told))?;
        if let Some(digest) = token {
            self.tokens.take(&digest);
        }
        Ok(task)
    }

    /// Checks whether a machine may become a node now. A cluster is created once.
    fn may_register(&self, cx: &Context<'_>, call: &Call, number: u64) -> Result<(), Failure> {
        let owner = &call.caller.owner;
        let refuse = |code, message: &str| Err(Failure::new(code, message));
        if !self.candidates[&number].prepared {
            return refuse(Code::FailedPrecondition, "the machine is not prepared");
        }
        let mut making = cx.kernel.tasks();
        let is_made =
            making.any(|task| task.operation == INIT && task.ended.is_none() && task.stamp.owner == *owner);
        match (call.operation.as_str(), self.clusters.contains_key(owner)) {
            _ if self.nodes.contains_key(&number) => {
                refuse(Code::AlreadyExists, "the machine is a node already")
            }
            (INIT, true) => refuse(Code::AlreadyExists, "there is a cluster already"),
            (INIT, false) if is_made => refuse(Code::FailedPrecondition, "another machine makes the cluster"),
            (JOIN, false) => refuse(Code::FailedPrecondition, "there is no cluster to join"),
            _ => Ok(()),
        }
    }

    /// Makes the machine a node.
    pub(super) fn register(&mut self, cx: &mut Context<'_>, task: &Task) -> Result<(), TaskError> {
        let (at, told) = (cx.at, &task.told);
        let token = told["token"].as_str();
        if self.api_server(cx.kernel).back(at).is_some() {
            return Err(TaskError::new("Timeout", "the API server does not answer"));
        }
        if task.operation == JOIN && !self.tokens.lets_join(at, token) {
            return Err(TaskError::new("Unauthorized", "the bootstrap token is not valid"));
        }
        let Some(candidate) = self.candidates.get(&task.about) else {
            return Ok(());
        };
        let Some(up) = candidate.up.filter(|up| *up <= at) else {
            return Err(TaskError::new("Unreachable", "the machine does not answer"));
        };
        let node = Node {
            machine: task.name.clone(),
            name: candidate.node_name.clone(),
            stamp: task.stamp.clone(),
            token: token.map(str::to_owned),
            booted: up,
            joined: Some(at),
            well: at,
            labels: BTreeMap::deserialize(&told["labels"]).unwrap_or_default(),
            taints: Vec::deserialize(&told["taints"]).unwrap_or_default(),
            ..Node::default()
        };
        self.nodes.insert(task.about, node);
        cx.kernel.announce(Event::NodeJoined { vm: task.about });
        if task.operation == INIT {
            self.clusters.insert(task.stamp.owner.clone(), task.about);
        }
        Ok(())
    }
}
