//! The operations that read a VM.

use polity_driver_sdk::prelude::*;

use crate::inventory::{by_instance_uuid, unescaped};
use crate::marks::{BASE64, METADATA, METADATA_ENCODING};
use crate::properties::Property;
use crate::services::Services;
use crate::vm::{self, Vm};
use crate::{base64, power};

const NAME: Property = Property::text("name");
const INSTANCE_UUID: Property = Property::text("config.instanceUuid");
const BIOS_UUID: Property = Property::text("config.uuid");
const DESCRIBED: [Property; 3] = [NAME, INSTANCE_UUID, BIOS_UUID];

const POWER_STATE: Property = Property::text("runtime.powerState");

/// `vm.find`. VMs of other owners are left out.
pub(crate) async fn find(cx: &Context) -> Result<Value, Failure> {
    let services = Services::of(cx).await?;
    let uuid = cx.argument("instanceUuid");
    let hits = by_instance_uuid(cx, &services, uuid).await?;
    let looks = hits
        .iter()
        .map(|hit| vm::look(cx, &services, &hit.id, &DESCRIBED));
    for look in join_all(looks).await {
        match look {
            Ok(vm) if vm.options.are_own(cx) => return describe(&vm),
            Ok(_) => {}
            // The VM was removed between the search and the read.
            Err(gone) if gone.code == Code::NotFound => {}
            Err(unread) => return Err(unread),
        }
    }
    let message = format!("this object has no VM with instance UUID {uuid:?}");
    Err(failure(Code::NotFound, message))
}

/// `vm.get`.
pub(crate) async fn get(cx: &Context) -> Result<Value, Failure> {
    describe(&own(cx, &DESCRIBED).await?)
}

/// `vm.metadata`. Metadata in another encoding was not set by this driver, and is answered as it is.
pub(crate) async fn metadata(cx: &Context) -> Result<Value, Failure> {
    let vm = own(cx, &[]).await?;
    let metadata = vm
        .options
        .get(METADATA)
        .map(|text| match vm.options.get(METADATA_ENCODING) {
            Some(BASE64 | "b64") => base64::decode(text).unwrap_or_else(|| text.to_owned()),
            _ => text.to_owned(),
        });
    Ok(json!({"metadata": metadata}))
}

/// `vm.power`.
pub(crate) async fn power(cx: &Context) -> Result<Value, Failure> {
    let vm = own(cx, &[POWER_STATE]).await?;
    let state = vm.object.text(&POWER_STATE)?;
    let shown = power::shown(state);
    let shown = shown.ok_or_else(|| {
        let message = format!("VM {} has the unknown power state {state:?}", vm.id());
        failure(Code::Internal, message)
    })?;
    Ok(json!({"state": shown}))
}

async fn own(cx: &Context, more: &[Property]) -> Result<Vm, Failure> {
    let services = Services::of(cx).await?;
    vm::own(cx, &services, cx.argument("id"), more).await
}

fn describe(vm: &Vm) -> Result<Value, Failure> {
    let text = |property: &Property| match vm.object.text(property)? {
        "" => {
            let message = format!("vCenter does not show {1} of VM {0} now", vm.id(), property.path);
            Err(failure(Code::Unavailable, message))
        }
        text => Ok(text),
    };
    Ok(json!({
        "id": vm.id(),
        "name": unescaped(text(&NAME)?),
        "instanceUuid": text(&INSTANCE_UUID)?,
        "biosUuid": text(&BIOS_UUID)?,
    }))
}
