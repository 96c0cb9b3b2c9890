//! Reads a machine.

use polity_driver_sdk::prelude::*;

use crate::look;
use crate::manifest;
use crate::spec::Spec;

/// Reads the machine.
pub(crate) async fn perform(cx: &Context) -> Result<Value, Failure> {
    let spec = Spec::given(cx)?;
    manifest::check_region(cx, spec.as_ref().map_or("", |spec| &spec.region))?;
    let seen = look::machine(cx).await?;
    let (instance, _) = look::meant(cx, &seen)?;
    let mut machine = instance.machine();
    let wanted = spec.as_ref().map(Spec::later_prefixes).unwrap_or_default();
    let has_prefixes = wanted
        .iter()
        .all(|(index, count)| instance.has_prefixes(*index, *count as usize));
    if let Some(initialized) = is_initialized(instance.source_dest_check(), spec.as_ref()) {
        machine["initialized"] = (initialized && has_prefixes).into();
    }
    Ok(machine)
}

/// Whether `machine.initialize` has nothing left to do. If the check is on and there is no class, this is not known.
fn is_initialized(source_dest_check: Option<bool>, spec: Option<&Spec>) -> Option<bool> {
    match (source_dest_check?, spec) {
        (false, _) => Some(true),
        (true, Some(spec)) => Some(!spec.drops_source_dest_check()),
        (true, None) => None,
    }
}
