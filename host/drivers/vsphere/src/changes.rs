//! The operations that change a VM. Each answers the id of its task.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;

use crate::fault::Does;
use crate::marks::{BASE64, METADATA, METADATA_ENCODING, option};
use crate::moid::{Moid, VM, is_id};
use crate::services::Services;
use crate::soap::{Call, lacking};
use crate::{base64, vm};

/// `vm.reconfigure`: sets the metadata. The guest sees it when it reads the metadata again.
pub(crate) async fn reconfigure(cx: &Context) -> Result<Value, Failure> {
    let metadata = base64::encode(cx.argument("metadata"));
    let spec = Element::new("spec")
        .with(option(METADATA, metadata))
        .with(option(METADATA_ENCODING, BASE64));
    submit(cx, "ReconfigVM_Task", Some(spec)).await
}

/// `vm.power-on`.
pub(crate) async fn power_on(cx: &Context) -> Result<Value, Failure> {
    submit(cx, "PowerOnVM_Task", None).await
}

/// `vm.power-off`.
pub(crate) async fn power_off(cx: &Context) -> Result<Value, Failure> {
    submit(cx, "PowerOffVM_Task", None).await
}

/// `vm.destroy`: removes the VM and its disks.
pub(crate) async fn destroy(cx: &Context) -> Result<Value, Failure> {
    submit(cx, "Destroy_Task", None).await
}

async fn submit(cx: &Context, method: &'static str, parameter: Option<Element>) -> Result<Value, Failure> {
    let services = Services::of(cx).await?;
    let vm = vm::own(cx, &services, cx.argument("id"), &[]).await?;
    let owned = vm.owned(cx)?;
    let this = Moid::new(VM, owned.id());
    let call = Call::new(method, &this).with(parameter).keep(["returnval"]);
    started(method, &call.change(cx, &owned).await?)
}

/// The answer to an operation that has started a task.
pub(crate) fn started(method: &str, response: &Value) -> Result<Value, Failure> {
    match tree::text(response, "returnval") {
        id if is_id(id) => Ok(json!({"task": id})),
        _ => Err(lacking(method, "task", Does::Change)),
    }
}
