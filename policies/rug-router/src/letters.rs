//! The variables of the state machine, with the letters of the drawing.

use polity_sdk::prelude::*;

/// A node of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Takes one action from the queue. The machine rests here.
    CalcAction,
    /// Checks whether the VM is alive.
    Alive,
    /// Creates a VM.
    CreateVm,
    /// Checks whether the new VM has booted.
    CheckBoot,
    /// Configures the VM.
    Config,
    /// Plugs and unplugs networks while the VM runs.
    ReplugVm,
    /// Removes the VM.
    StopVm,
    /// Removes the VM in order to create another one.
    RebuildVm,
    /// Reads the traffic.
    Stats,
    /// Forgets an error, so that work goes on.
    ClearError,
    /// There is nothing left to do.
    Exit,
}

/// The variable ACT: the present action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    /// The router is new.
    #[serde(rename = "C")]
    Create,
    /// A person wants to know its traffic.
    #[serde(rename = "R")]
    Read,
    /// The router was changed.
    #[serde(rename = "U")]
    Update,
    /// The router is being deleted.
    #[serde(rename = "D")]
    Delete,
    /// The router is polled, as every minute.
    #[default]
    #[serde(rename = "P")]
    Poll,
    /// A person wants another VM.
    #[serde(rename = "E")]
    Rebuild,
}

/// The variable vm: the believed state of the VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Vm {
    /// There is no usable VM.
    #[default]
    #[serde(rename = "D")]
    Down,
    /// The VM was created and has not answered yet.
    #[serde(rename = "B")]
    Booting,
    /// The VM answers.
    #[serde(rename = "U")]
    Up,
    /// The VM has its configuration.
    #[serde(rename = "C")]
    Configured,
    /// The VM must be replaced.
    #[serde(rename = "R")]
    RestartNeeded,
    /// The VM's networks are not those of the router.
    #[serde(rename = "H")]
    HotplugNeeded,
    /// The network service no longer knows the router.
    #[serde(rename = "G")]
    Gone,
    /// The VM was booted too often.
    #[serde(rename = "E")]
    Error,
}
