//! Where the value of a sealed argument may be sent, and how large it may be.
//!
//! A driver chooses the body of a request. Without these rules it could put user data into a label, read the label in a later
//! operation, and answer it: a value that no policy may see would stand in journals, in objects and in recordings. The fields
//! of these rules are those of which `polity_body` keeps nothing when a cloud returns them.

use polity_core::contract::driver::Login;

use super::{machine, vm};

/// A place in the body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealedPlace {
    /// A field of a form with this `Action`.
    Form {
        /// The action.
        action: &'static str,
        /// The field.
        field: &'static str,
    },
    /// The text at a dotted path of a JSON document that is posted to a path with this end.
    Json {
        /// The last segment of the path.
        path: &'static str,
        /// The dotted path of the field.
        field: &'static str,
    },
    /// The `value` of an element of XML that has one of these as its `key`, in any case.
    Option {
        /// The dotted path of the elements.
        elements: &'static str,
        /// The keys, in small letters.
        keys: &'static [&'static str],
    },
    /// A field of this name, in any case, wherever it is in a JSON document or in a form.
    Named(&'static str),
}

/// The options in which a guest finds what only it should see.
const GUEST: &[&str] = &["guestinfo.userdata", "guestinfo.vendordata"];

/// Source: "RunInstances" in the reference of the EC2 API.
const EC2: &[SealedPlace] = &[SealedPlace::Form {
    action: "RunInstances",
    field: "UserData",
}];
/// Source: "Create server" in the reference of the compute API.
const NOVA: &[SealedPlace] = &[SealedPlace::Json {
    path: "servers",
    field: "server.user_data",
}];
/// Source: `CloneVM_Task` and `CreateVM_Task` in the reference of the vSphere web services, and cloud-init's "VMware".
const VSPHERE: &[SealedPlace] = &[
    SealedPlace::Option {
        elements: "Envelope.Body.CloneVM_Task.spec.config.extraConfig",
        keys: GUEST,
    },
    SealedPlace::Option {
        elements: "Envelope.Body.CreateVM_Task.config.extraConfig",
        keys: GUEST,
    },
    SealedPlace::Option {
        elements: "Envelope.Body.ReconfigVM_Task.spec.extraConfig",
        keys: GUEST,
    },
];
/// Clouds that no login names. Of these fields nothing is kept either.
const OTHERS: &[SealedPlace] = &[SealedPlace::Named("user_data"), SealedPlace::Named("userdata")];

/// The places to which an operation may send sealed values: with this login, an operation of a driver. Only creates send any.
pub fn sealed_places(login: Login, operation: &str) -> &'static [SealedPlace] {
    if ![machine::CREATE, vm::CLONE].contains(&operation) {
        return &[];
    }
    match login {
        Login::AwsSigv4 => EC2,
        Login::Keystone => NOVA,
        Login::VsphereSession => VSPHERE,
        Login::None | Login::Basic | Login::Bearer => OTHERS,
    }
}

/// The most bytes of a sealed value where no cloud says less.
pub const LARGEST_SEALED: usize = 64 << 10;

/// The most bytes of a sealed value with this login.
pub fn largest_sealed(login: Login) -> usize {
    /// So many bytes have at most this length in base64.
    const fn before_base64(length: usize) -> usize {
        length / 4 * 3
    }
    match login {
        // "User data is limited to 16 KB, in raw form, before it is base64-encoded": EC2's user guide.
        Login::AwsSigv4 => 16 << 10,
        // `MAX_USERDATA_SIZE` in nova/compute/api.py, of the encoded text.
        Login::Keystone => before_base64(65_535),
        // `GUESTMSG_MAX_IN_SIZE` in open-vm-tools: the largest value that a guest can read, encoded.
        Login::VsphereSession => before_base64(64 << 10),
        Login::None | Login::Basic | Login::Bearer => LARGEST_SEALED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_creates_send_sealed_values() {
        let logins = [
            Login::None,
            Login::Basic,
            Login::Bearer,
            Login::Keystone,
            Login::AwsSigv4,
            Login::VsphereSession,
        ];
        for login in logins {
            for operation in [
                machine::STATUS,
                machine::DELETE,
                machine::INITIALIZE,
                "router.boot",
            ] {
                assert!(sealed_places(login, operation).is_empty());
            }
            assert!(!sealed_places(login, machine::CREATE).is_empty());
            assert!(largest_sealed(login) <= LARGEST_SEALED);
        }
        assert_eq!(largest_sealed(Login::Keystone), 49_149);
    }
}
