//! The acceptance stories of `mcm-machine`, `mcm-safety`, `capa-identity`, `orbiter` with its node agents, and
//! `rug-router`: each is told twice, in virtual time on the embedded API, and on a real kube-apiserver with etcd beside
//! kube-controller-manager, which counts the pods of disruption budgets and collects garbage there. What people see at
//! the turns of a story has to be the same.
//!
//! # Flow
//!
//! [`scene::alike`] opens a [`scene::Scene`] on each server: the same bindings, the same simulated cloud with its kubelets,
//! the host in this process, which on a real server is allowed what `polity rbac` derives from the bindings and no
//! more; so is each node agent, which is a process of its own there. The story waits for what it expects on watches,
//! says what it wants [`compared`](scene::Scene::sees), and checks the rest by itself.
//!
//! # Caveats
//!
//! Against a real server time is real, so the periods of the policies are short here, on both. What they are otherwise,
//! the scenarios test (`tests/tests/scenarios`).

mod capa;
mod mcm;
mod orbiter;
mod rug;
mod scene;
mod seen;
