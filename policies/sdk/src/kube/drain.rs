//! Draining a Node: its pods leave before its machine does.
//!
//! A pass cannot wait. So a drain is a small state machine over several passes: each call looks at what is
//! left, does what is due, and returns the progress. The state between passes is a [`Drain`], which the
//! policy keeps in its object's status.
//!
//! # Flow
//!
//! The node is cordoned. Its pods are listed; pods of DaemonSets and static pods of the kubelet stay. Those with
//! the highest priority are evicted first. Pods without volumes are evicted all at once. Pods with volumes are
//! evicted one after another: each is evicted and gone, its volumes are detached, and then attached elsewhere. A
//! volume that another pod on the node has too is not waited for. A forced drain deletes all pods that are left
//! without a grace period and waits for no volume.
//!
//! # Guarantees
//!
//! Without force, pods leave only by eviction, so no disruption budget is bypassed. And no pod is held back that
//! the API server would evict: every pod is asked for, and only a budget that has refused one is looked at. The
//! policy decides whether and when to use force, and whether a pod is deleted that was evicted and does not end.

mod budget;
mod pod;
mod volume;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::NeedOf;
use crate::cluster::{Write, Written};
use crate::contract::{Code, Failure};
use crate::join::join_all;
use crate::kube::node::{self, Node};
use crate::time::millis;
use crate::{Context, Found, Kind, Need, Time, cluster};

pub use budget::{Budget, BudgetSpec, BudgetStatus};
pub use pod::{Pod, PodSpec, PodVolume};
pub use volume::{Attachment, Claim, Volume, detach_volumes, specifications};

/// The most acts on pods in one pass. A node rarely has more pods, and the journal of a pass has 1,024
/// entries.
const PODS_AT_ONCE: usize = 110;

/// The most pods with volumes that are asked for in one pass. Each is a step of its own, and a pass has 64.
const TRIED_IN_TURN: usize = 32;

/// The needs of a policy that drains nodes.
pub fn needs() -> [Need; 8] {
    [
        Need::objects_of::<Node>(),
        Need::objects_of::<Pod>(),
        Need::objects_of::<Budget>(),
        Need::objects_of::<Claim>(),
        Need::objects_of::<Attachment>(),
        Need::patch_of::<Node>(),
        Need::delete_of::<Pod>(),
        Need::Evict,
    ]
}

/// The options of a drain. The defaults are those of Gardener's machine-controller-manager.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whether to delete pods at once instead of evicting them, and to wait for no volume.
    pub force: bool,
    /// The grace period of evicted pods, instead of their own.
    pub eviction_grace: Option<Duration>,
    /// Whether to delete pods that were evicted and do not end in time. Otherwise the drain fails.
    pub delete_late: bool,
    /// The longest time of a forced drain.
    pub forced_timeout: Duration,
    /// The wait after a budget has refused an eviction.
    pub retry_period: Duration,
    /// The longest grace period of a pod.
    pub longest_grace: Duration,
    /// How much longer than its grace period a pod with volumes may take.
    pub grace_with_volumes: Duration,
    /// How much longer than its grace period a pod without volumes may take.
    pub grace_without_volumes: Duration,
    /// The longest time for volumes to leave the node.
    pub detach_timeout: Duration,
    /// The longest time to wait for volumes to be attached to another node.
    pub reattach_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            force: false,
            eviction_grace: None,
            delete_late: false,
            forced_timeout: Duration::from_secs(60),
            retry_period: Duration::from_secs(20),
            longest_grace: Duration::from_secs(2 * 3600),
            grace_with_volumes: Duration::from_secs(30),
            grace_without_volumes: Duration::from_secs(180),
            detach_timeout: Duration::from_secs(120),
            reattach_timeout: Duration::from_secs(90),
        }
    }
}

/// The state of a drain between passes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Drain {
    /// When the drain was first forced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_since: Option<Time>,
    /// How often a disruption budget has refused each pod that is left, by uid.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u32>,
    /// The pod with volumes that is leaving now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
}

/// A pod with volumes on its way to another node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Moving {
    /// The pod: `namespace/name`.
    pub pod: String,
    /// Its uid.
    pub uid: String,
    /// The persistent volumes that were attached to this node for it.
    pub volumes: Vec<String>,
    /// The cloud's ids of the volumes that the cloud attaches, once the policy has asked for them. The node must
    /// lose these too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// The stage of the pod.
    pub stage: Stage,
    /// When the stage began.
    pub since: Time,
}

/// The stage of a pod with volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Stage {
    /// The pod is ending.
    Terminating,
    /// Its volumes are leaving the node.
    Detaching,
    /// Its volumes are being attached to another node.
    Reattaching,
}

/// The progress of a drain.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// No pod is left that must go.
    Done,
    /// Evictions were refused. The failure says when to try again.
    Refused {
        /// The number of pods that must go.
        left: usize,
        /// The refusal as `unavailable` with a `retry_after`, so that it does not look like an exhausted
        /// quota of the cloud.
        failure: Failure,
    },
    /// Pods are ending.
    Ending {
        /// The number of these pods.
        left: usize,
    },
    /// Only the volumes of the last pod are still on their way.
    Volumes,
    /// Something failed in this pass. All pods that could be evicted were evicted; the next pass tries again.
    Failed(Failure),
}

impl Drain {
    /// The pod whose volumes have no ids of the cloud yet, as long as they have not begun to leave.
    pub fn unnamed(&mut self) -> Option<&mut Moving> {
        let moving = self.moving.as_mut()?;
        (moving.ids.is_none() && moving.stage == Stage::Terminating).then_some(moving)
    }

    /// Whether a budget has refused a pod this many times.
    pub fn is_exhausted(&self, retries: u32) -> bool {
        self.refused.values().any(|times| *times >= retries)
    }

    /// Runs one pass of a drain. `Err` is a failure to look or to cordon.
    pub async fn pass<T: Kind, C>(
        &mut self,
        cx: &Context<T, C>,
        node: &mut Node,
        options: &Options,
    ) -> Result<Progress, Failure> {
        if !node.spec.unschedulable {
            let written = cx.act(node::cordon(node)).await?;
            node.written(written);
        }
        let here = format!("spec.nodeName={}", node.metadata.name);
        let mut pods = cx
            .ask(cluster::objects::<Pod>().everywhere().fields(&here))
            .await?;
        pods.retain(Pod::has_to_go);
        self.refused
            .retain(|uid, _| pods.iter().any(|pod| pod.metadata.uid == *uid));
        if options.force {
            self.force(cx, &pods, options).await
        } else {
            self.forced_since = None;
            self.persuade(cx, node, &pods, options).await
        }
    }

    /// Deletes the pods that are left, without a grace period.
    async fn force<T: Kind, C>(
        &mut self,
        cx: &Context<T, C>,
        pods: &[Pod],
        options: &Options,
    ) -> Result<Progress, Failure> {
        self.moving = None;
        let since = *self.forced_since.get_or_insert(cx.now());
        if pods.is_empty() {
            return Ok(Progress::Done);
        }
        if cx.now().since(since) > options.forced_timeout {
            return Ok(Progress::Failed(late(format!("{} pods are left", pods.len()))));
        }
        let deletions = pods
            .iter()
            .take(PODS_AT_ONCE)
            .map(|pod| cx.act(cluster::delete(pod).any_version().grace_period_seconds(0)));
        for deleted in join_all(deletions).await {
            if let Err(failure) = deleted.found() {
                return Ok(Progress::Failed(failure));
            }
        }
        Ok(Progress::Ending { left: pods.len() })
    }

    /// Evicts the pods that may go, and waits for them.
    async fn persuade<T: Kind, C>(
        &mut self,
        cx: &Context<T, C>,
        node: &Node,
        pods: &[Pod],
        options: &Options,
    ) -> Result<Progress, Failure> {
        let arrival = self.follow_volumes(cx, node, pods, options).await?;
        let mut told = Told::default();
        let late: Vec<&Pod> = pods
            .iter()
            .filter(|pod| pod.metadata.deleting() && cx.now() > pod.gone_by(options))
            .collect();
        if options.delete_late {
            end_late(cx, &late, &mut told).await;
        } else {
            late.iter().for_each(|pod| told.fail(does_not_end(pod)));
        }
        let (plain, heavy) = self.choose(pods, cx.now(), options);
        let evictions = plain.iter().map(|pod| cx.act(eviction(pod, options)));
        let evicted = join_all(evictions).await;
        for (pod, evicted) in plain.into_iter().zip(evicted) {
            self.settle(pod, evicted, &mut told);
        }
        self.move_one(cx, node, pods, heavy, options, &mut told).await?;
        self.judge(cx, options, &mut told).await?;
        Ok(match (told.failed, told.refused, arrival) {
            (Some(failure), ..) | (_, _, Arrival::Late(failure)) => Progress::Failed(failure),
            (None, Some(failure), _) => Progress::Refused {
                left: pods.len(),
                failure,
            },
            _ if !pods.is_empty() => Progress::Ending { left: pods.len() },
            _ if self.moving.is_some() => Progress::Volumes,
            _ => Progress::Done,
        })
    }

    /// The pods that are asked for, without volumes and with: those that were refused after the others, and then by
    /// priority. Those with volumes wait while one is on its way, but not for one that does not end.
    fn choose<'a>(&self, pods: &'a [Pod], now: Time, options: &Options) -> (Vec<&'a Pod>, Vec<&'a Pod>) {
        let stuck = |pod: &Pod| pod.is_stuck(now, options);
        let left = |moving: &Moving| {
            !pods
                .iter()
                .any(|pod| pod.metadata.uid == moving.uid && stuck(pod))
        };
        let ending = |pod: &Pod| pod.has_volumes() && pod.metadata.deleting() && !stuck(pod);
        let busy = self.moving.as_ref().is_some_and(left) || pods.iter().any(ending);
        let mut chosen: Vec<&Pod> = pods
            .iter()
            .filter(|pod| !pod.metadata.deleting() && (!busy || !pod.has_volumes()))
            .collect();
        let refusals = |pod: &Pod| self.refused.get(&pod.metadata.uid).copied().unwrap_or(0);
        chosen.sort_by_key(|pod| (refusals(pod), Reverse(pod.spec.priority.unwrap_or(0))));
        chosen.truncate(PODS_AT_ONCE);
        chosen.into_iter().partition(|pod| !pod.has_volumes())
    }

    /// Evicts the pods with volumes one after another until one goes. The others wait for its volumes, as in MCM
    /// (`evictPodsWithPVInternal` of `drain.go`).
    async fn move_one<'a, T: Kind, C>(
        &mut self,
        cx: &Context<T, C>,
        node: &Node,
        pods: &[Pod],
        mut heavy: Vec<&'a Pod>,
        options: &Options,
        told: &mut Told<'a>,
    ) -> Result<(), Failure> {
        heavy.truncate(TRIED_IN_TURN);
        let volumes = heavy.iter().map(|pod| moving(cx, node, pod, pods));
        let volumes = join_all(volumes).await;
        for (pod, volumes) in heavy.into_iter().zip(volumes) {
            let moving = volumes?;
            let evicted = cx.act(eviction(pod, options)).await;
            if self.settle(pod, evicted, told) {
                self.moving = moving.or_else(|| self.moving.take());
                break;
            }
        }
        Ok(())
    }

    /// Takes the answer to an eviction. Returns whether the pod goes.
    fn settle<'a>(&mut self, pod: &'a Pod, evicted: Result<Written, Failure>, told: &mut Told<'a>) -> bool {
        match evicted {
            Ok(_) => {
                self.refused.remove(&pod.metadata.uid);
                return true;
            }
            // The pod is gone, or replaced by another one. The next pass sees which.
            Err(failure) if [Code::NotFound, Code::Aborted].contains(&failure.code) => {}
            // Only a refusal by a budget counts. A server that cannot answer now is no reason for force.
            Err(failure) if failure.code == Code::ResourceExhausted => told.unjudged.push((pod, failure)),
            Err(failure) => told.fail(failure),
        }
        false
    }

    /// Looks at the budgets that have refused pods. One that never allows a disruption is a mistake of a person, so
    /// it is reported at once and not after all retries.
    ///
    /// As in MCM (`drain.go`, where `isMisconfiguredPdb` is called), only a refusal leads to a budget. What a budget
    /// says about a pod that is pending, has ended or is not ready is the rule of the API server alone
    /// (kube-apiserver, `pkg/registry/core/pod/storage/eviction.go`).
    async fn judge<T: Kind, C>(
        &mut self,
        cx: &Context<T, C>,
        options: &Options,
        told: &mut Told<'_>,
    ) -> Result<(), Failure> {
        let refusals = std::mem::take(&mut told.unjudged);
        if refusals.is_empty() {
            return Ok(());
        }
        let budgets = cx.ask_again(1, cluster::objects::<Budget>().everywhere()).await?;
        for (pod, failure) in refusals {
            let hopeless = |budget: &&Budget| budget.covers(pod) && budget.is_hopeless();
            if let Some(budget) = budgets.iter().find(hopeless) {
                told.fail(never_allowed(pod, budget));
            } else {
                *self.refused.entry(pod.metadata.uid.clone()).or_default() += 1;
                told.refuse(failure, options);
            }
        }
        Ok(())
    }

    /// Follows the volumes of the pod that has left.
    async fn follow_volumes<T: Kind, C>(
        &mut self,
        cx: &Context<T, C>,
        node: &Node,
        pods: &[Pod],
        options: &Options,
    ) -> Result<Arrival, Failure> {
        let Some(moving) = &mut self.moving else {
            return Ok(Arrival::InTime);
        };
        if moving.stage == Stage::Terminating {
            if pods.iter().any(|pod| pod.metadata.uid == moving.uid) {
                return Ok(Arrival::InTime);
            }
            (moving.stage, moving.since) = (Stage::Detaching, cx.now());
        }
        let attachments = cx.ask(cluster::objects::<Attachment>()).await?;
        if moving.stage == Stage::Detaching {
            let still_here =
                |volume: &String| attachments.iter().any(|a| a.holds(volume, &node.metadata.name));
            let on_node = |id: &String| node.has_attached(id);
            if moving.volumes.iter().any(still_here) || moving.ids.iter().flatten().any(on_node) {
                if cx.now().since(moving.since) <= options.detach_timeout {
                    return Ok(Arrival::InTime);
                }
                let failure = late(format!("the volumes of pod {} do not detach", moving.pod));
                self.moving = None;
                return Ok(Arrival::Late(failure));
            }
            (moving.stage, moving.since) = (Stage::Reattaching, cx.now());
        }
        // The drain does not depend on where the volumes arrive. After a while it goes on without them.
        let arrived = |volume: &String| attachments.iter().any(|a| a.status.attached && a.is_for(volume));
        if moving.volumes.iter().all(arrived) || cx.now().since(moving.since) > options.reattach_timeout {
            self.moving = None;
        }
        Ok(Arrival::InTime)
    }
}

/// What a pod takes with it: its volumes that are attached here; `None` if none are.
async fn moving<T: Kind, C>(
    cx: &Context<T, C>,
    node: &Node,
    pod: &Pod,
    pods: &[Pod],
) -> Result<Option<Moving>, Failure> {
    let volumes = volume::attached_for(cx, node, pod, pods).await?;
    Ok((!volumes.is_empty()).then(|| Moving {
        pod: pod.full_name(),
        uid: pod.metadata.uid.clone(),
        volumes,
        ids: None,
        stage: Stage::Terminating,
        since: cx.now(),
    }))
}

fn eviction(pod: &Pod, options: &Options) -> Write {
    let eviction = cluster::evict(pod).any_version();
    match options.eviction_grace {
        Some(grace) => eviction.grace_period_seconds(u32::try_from(grace.as_secs()).unwrap_or(u32::MAX)),
        None => eviction,
    }
}

/// Deletes pods whose time to end is over.
async fn end_late<T: Kind, C>(cx: &Context<T, C>, late: &[&Pod], told: &mut Told<'_>) {
    let deletions = late
        .iter()
        .take(PODS_AT_ONCE)
        .map(|pod| cx.act(cluster::delete(*pod).any_version().grace_period_seconds(0)));
    for deleted in join_all(deletions).await {
        if let Err(failure) = deleted.found() {
            told.fail(failure);
        }
    }
}

fn does_not_end(pod: &Pod) -> Failure {
    late(format!("pod {} does not end", pod.full_name()))
}

fn never_allowed(pod: &Pod, budget: &Budget) -> Failure {
    let message = format!(
        "pod {} cannot be evicted: the disruption budget {} never allows it",
        pod.full_name(),
        budget.metadata.name
    );
    Failure::new(Code::FailedPrecondition, message)
}

enum Arrival {
    InTime,
    Late(Failure),
}

/// The results of a pass so far: the first failure, the refusal with the longest wait, and the refusals by budgets
/// that nobody has looked at yet.
#[derive(Default)]
struct Told<'a> {
    failed: Option<Failure>,
    refused: Option<Failure>,
    unjudged: Vec<(&'a Pod, Failure)>,
}

impl Told<'_> {
    fn fail(&mut self, failure: Failure) {
        self.failed.get_or_insert(failure);
    }

    fn refuse(&mut self, mut failure: Failure, options: &Options) {
        let period = millis(options.retry_period);
        failure.code = Code::Unavailable;
        failure.retry_after = Some(failure.retry_after.unwrap_or(0).max(period));
        let longer = |known: &Failure| known.retry_after < failure.retry_after;
        if self.refused.as_ref().is_none_or(longer) {
            self.refused = Some(failure);
        }
    }
}

fn late(message: String) -> Failure {
    Failure::new(Code::DeadlineExceeded, message)
}
