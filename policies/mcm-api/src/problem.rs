//! The reason why no machine can be created from a class.

use polity_sdk::prelude::*;

use crate::{Config, Machine, MachineClass};

/// The reason why no machine can be created from a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
}

impl Problem {
    fn new(reason: &'static str, message: String) -> Problem {
        Problem { reason, message }
    }

    /// Loads the machine's class and checks its Secrets. A failed read is not a problem of the class.
    pub async fn find<T: Kind, C>(
        cx: &Context<T, C>,
        machine: &Machine,
        config: &Config,
    ) -> Result<Result<MachineClass, Problem>, Failure> {
        let named = &machine.spec.class;
        let missing = || {
            let message = format!("{} {} does not exist", named.kind, named.name);
            Problem::new("ClassMissing", message)
        };
        if named.kind != MachineClass::KIND {
            return Ok(Err(missing()));
        }
        let Some(class) = cx
            .ask(cluster::object::<MachineClass>(&named.name))
            .await
            .found()?
        else {
            return Ok(Err(missing()));
        };
        let finalizer = &config.class_finalizer;
        if !finalizer.is_empty() && !class.metadata.finalizers.contains(finalizer) {
            let message = format!(
                "MachineClass {} does not have the finalizer {finalizer} yet",
                named.name
            );
            return Ok(Err(Problem::new("ClassNotReady", message)));
        }
        if class
            .spec
            .node_template
            .as_ref()
            .is_some_and(|t| !t.is_complete())
        {
            let message = format!("the node template of MachineClass {} is not complete", named.name);
            return Ok(Err(Problem::new("NodeTemplateInvalid", message)));
        }
        let secrets = [
            (&class.spec.secret_ref, &config.secret_keys),
            (&class.spec.credentials_secret_ref, &config.credential_keys),
        ];
        for (secret, keys) in secrets {
            let Some(secret) = secret else { continue };
            let facts = cx.ask(cluster::secret(&secret.name)).await.found()?;
            if let Some(lacking) = secret.lacks(&facts.unwrap_or_default(), keys) {
                return Ok(Err(Problem::new("SecretInvalid", lacking)));
            }
        }
        Ok(Ok(class))
    }
}
