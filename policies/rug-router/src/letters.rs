//! The variables of the state machine, in the letters of the drawing.

use polity_sdk::prelude::*;

/// A node of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// Makes one action of the queue. The machine rests here.
    CalcAction,
    /// Asks whether the VM is alive.
    Alive,
    /// Makes a VM.
    CreateVm,
    /// Asks whether the new VM has booted.
    CheckBoot,
    /// Configures the VM.
    Config,
    /// Plugs networks in and out while the VM runs.
    ReplugVm,
    /// Takes the VM down.
    StopVm,
    /// Takes the VM down, to make another one.
    RebuildVm,
    /// Reads how much traffic there was.
    Stats,
    /// Forgets an error, so that something is done again.
    ClearError,
    /// There is nothing left to do, for ever.
    Exit,
}

/// The variable ACT: what is being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    /// The router is new.
    #[serde(rename = "C")]
    Create,
    /// Somebody wants to know its traffic.
    #[serde(rename = "R")]
    Read,
    /// It was changed.
    #[serde(rename = "U")]
    Update,
    /// It is being deleted.
    #[serde(rename = "D")]
    Delete,
    /// It is looked at, as it is every minute.
    #[default]
    #[serde(rename = "P")]
    Poll,
    /// Somebody wants another VM.
    #[serde(rename = "E")]
    Rebuild,
}

/// The variable vm: what is believed of the VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Vm {
    /// There is none that is of any use.
    #[default]
    #[serde(rename = "D")]
    Down,
    /// It was made and has not answered yet.
    #[serde(rename = "B")]
    Booting,
    /// It answers.
    #[serde(rename = "U")]
    Up,
    /// It has its configuration.
    #[serde(rename = "C")]
    Configured,
    /// It needs to be made anew.
    #[serde(rename = "R")]
    RestartNeeded,
    /// Its networks are not those of the router.
    #[serde(rename = "H")]
    HotplugNeeded,
    /// The network service does not know the router any more.
    #[serde(rename = "G")]
    Gone,
    /// It was booted too often.
    #[serde(rename = "E")]
    Error,
}
