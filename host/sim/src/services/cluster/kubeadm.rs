//! How machines of pools become nodes: one makes the cluster, the others join it.

use std::collections::BTreeMap;

use polity_core::call::CloudRequest;
use polity_core::contract::{Code, Failure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Sim;
use crate::kernel::tasks::{Task, TaskError, TaskKind};
use crate::services::cluster::node::Node;

impl Sim {
    /// Whether a machine may be made a node now. A cluster is made once.
    pub(crate) fn may_register(
        &mut self,
        request: &CloudRequest,
        kind: TaskKind,
        number: u64,
    ) -> Result<String, Failure> {
        let owner = &request.session.owner;
        let refuse = |code, message: &str| Err(Failure::new(code, message));
        let prepared = self.world.members[&number].agent.as_ref();
        if !prepared.is_some_and(|agent| agent.initialized) {
            return refuse(Code::FailedPrecondition, "the machine is not prepared");
        }
        let made = self.world.clusters.get(owner);
        let mut making = self.world.tasks.values();
        let is_made = making
            .any(|task| task.kind == TaskKind::Init && task.ended.is_none() && task.stamp.owner == *owner);
        match (kind, made) {
            _ if self.world.nodes.contains_key(&number) => {
                return refuse(Code::AlreadyExists, "the machine is a node already");
            }
            (TaskKind::Init, Some(_)) => return refuse(Code::AlreadyExists, "there is a cluster already"),
            (TaskKind::Init, None) if is_made => {
                return refuse(Code::FailedPrecondition, "another machine makes the cluster");
            }
            (TaskKind::Join, None) => return refuse(Code::FailedPrecondition, "there is no cluster to join"),
            _ => {}
        }
        let token = self.take_token(request);
        let arguments = &request.arguments;
        let told = json!({"labels": arguments["labels"], "taints": arguments["taints"], "token": token});
        Ok(told.to_string())
    }

    /// The machine is a node from now on.
    pub(crate) fn register(&mut self, at: u64, task: &Task, told: &Value) -> Result<(), TaskError> {
        let token = told["token"].as_str();
        if self.api_server_back(at).is_some() {
            return Err(TaskError::new(
                "Timeout",
                "the API server does not answer".to_owned(),
            ));
        }
        if task.kind == TaskKind::Join && !self.lets_join(at, token) {
            return Err(TaskError::new(
                "Unauthorized",
                "the bootstrap token is not valid".to_owned(),
            ));
        }
        self.forget_agent(task.vm);
        let Some(member) = self.world.members.get(&task.vm) else {
            return Ok(());
        };
        let Some(up) = member.up.filter(|up| *up <= at) else {
            return Err(TaskError::new(
                "Unreachable",
                "the machine does not answer".to_owned(),
            ));
        };
        let node = Node {
            machine: task.name.clone(),
            name: member.node_name.clone(),
            stamp: task.stamp.clone(),
            token: token.map(str::to_owned),
            booted: up,
            joined: Some(at),
            well: at,
            labels: BTreeMap::deserialize(&told["labels"]).unwrap_or_default(),
            taints: Vec::deserialize(&told["taints"]).unwrap_or_default(),
            ..Node::default()
        };
        self.world.nodes.insert(task.vm, node);
        if task.kind == TaskKind::Init {
            self.world.clusters.insert(task.stamp.owner.clone(), task.vm);
        }
        Ok(())
    }
}
