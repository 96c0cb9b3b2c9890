//! The configuration of a connection.

use polity_driver_sdk::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration of a connection to an OpenStack.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The id of the network on which the management API of routers is reached. If none of the ports of a boot is on
    /// it, nova is asked to make one there. That port is not shown as one of the router's, and nova removes it with
    /// the server.
    #[schemars(length(min = 1))]
    pub management_network: String,
    /// How the tags of neutron begin that say whose a port or a router is. With the default, `polity`, a port is for
    /// the router `edge` of the tenant `team-a` if it has the tags `polity-tenant:team-a` and `polity-router:edge`.
    /// A port without both is for nobody: no router may have it.
    #[serde(default = "tag_prefix")]
    #[schemars(length(min = 1))]
    pub tag_prefix: String,
    /// Where it stands that a router is wanted. The default is `neutron`.
    #[serde(default)]
    pub routers: Routers,
    /// By how many seconds the clock of nova may differ from that of the host. The default is 60.
    #[serde(default = "clock_skew_seconds")]
    pub clock_skew_seconds: u32,
}

/// Where it stands that a router is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Routers {
    /// In neutron: a router of this name with the tag of the tenant. Without it the VM of the router is removed.
    #[default]
    Neutron,
    /// Nowhere else than in the object: every router is wanted as long as its object exists.
    Objects,
}

fn tag_prefix() -> String {
    "polity".to_owned()
}

fn clock_skew_seconds() -> u32 {
    60
}

impl Config {
    /// The configuration of the operation's connection.
    pub(crate) fn of(cx: &Context) -> Result<Self, Failure> {
        cx.config()
    }

    /// The tag that says for which tenant something is.
    pub(crate) fn tenant_tag(&self, tenant: &str) -> String {
        format!("{}-tenant:{tenant}", self.tag_prefix)
    }

    /// How a tag begins that says for which tenant something is.
    pub(crate) fn tenant_tags(&self) -> String {
        self.tenant_tag("")
    }

    /// How a tag begins that says for which router a port is. The name of the router follows.
    pub(crate) fn router_tags(&self) -> String {
        format!("{}-router:", self.tag_prefix)
    }

    /// How far clocks may differ, in milliseconds.
    pub(crate) fn clock_skew(&self) -> u64 {
        u64::from(self.clock_skew_seconds) * 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_the_management_network_has_a_default() {
        let config: Config = serde_json::from_value(json!({"managementNetwork": "m"})).unwrap();
        assert_eq!(
            (config.tenant_tag("a"), config.router_tags()),
            ("polity-tenant:a".to_owned(), "polity-router:".to_owned())
        );
        assert_eq!((config.routers, config.clock_skew()), (Routers::Neutron, 60_000));
        for wrong in [json!({}), json!({"managementNetwork": "m", "tagprefix": "p"})] {
            assert!(serde_json::from_value::<Config>(wrong).is_err());
        }
    }
}
