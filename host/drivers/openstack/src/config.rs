//! The configuration of a connection.

use polity_driver_sdk::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration of a connection to an OpenStack.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The id of the network on which the management API of routers is reached. If a router has no port on this network,
    /// nova creates one at the boot. That port is not shown as a port of the router, and nova removes it with the server.
    #[schemars(length(min = 1))]
    pub management_network: String,
    /// The beginning of the tags in neutron that assign a port or a router. With the default, `polity`, a port belongs to
    /// the router `edge` of the tenant `team-a` if it has the tags `polity-tenant:team-a` and `polity-router:edge`.
    /// A port without both tags cannot be used by any router.
    #[serde(default = "tag_prefix")]
    #[schemars(length(min = 1))]
    pub tag_prefix: String,
    /// Where a router must exist so that it is wanted. The default is `neutron`.
    #[serde(default)]
    pub routers: Routers,
    /// By how many seconds the clocks of nova and of the host may differ. The default is 60.
    #[serde(default = "clock_skew_seconds")]
    pub clock_skew_seconds: u32,
}

/// Where a router must exist so that it is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Routers {
    /// In neutron: a router of this name with the tag of the tenant. Without such a router the VM is removed.
    #[default]
    Neutron,
    /// Only as an object: every router is wanted as long as its object exists.
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

    /// The tag that assigns a port or a router to a tenant.
    pub(crate) fn tenant_tag(&self, tenant: &str) -> String {
        format!("{}-tenant:{tenant}", self.tag_prefix)
    }

    /// The beginning of the tags that assign a port or a router to a tenant.
    pub(crate) fn tenant_tags(&self) -> String {
        self.tenant_tag("")
    }

    /// The beginning of the tags that assign a port to a router. The name of the router follows.
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
