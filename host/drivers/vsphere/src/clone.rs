//! `vm.clone`: a VM from a template, powered off, with the marks of its owner.

use polity_driver_sdk::prelude::*;
use polity_driver_sdk::xml::Element;

use crate::changes::started;
use crate::config::{self, Config};
use crate::inventory::{Branch, Datacenter, expect};
use crate::moid::{Moid, VM};
use crate::networks::{self, Backing};
use crate::properties::{self, Property};
use crate::services::Services;
use crate::soap::Call;
use crate::spec::{self, Arguments, Place};
use crate::template;

/// The type of folders.
pub(crate) const FOLDER: &str = "Folder";
/// The types of objects that give a VM its CPUs and memory. The last two types have a resource pool of their own.
const POOLS: [&str; 4] = [
    "ResourcePool",
    "VirtualApp",
    "ComputeResource",
    "ClusterComputeResource",
];
/// The root resource pool of a cluster or host.
const ROOT_POOL: Property = Property::of("resourcePool", &["$text", "@type"]);

const METHOD: &str = "CloneVM_Task";

/// `vm.clone`.
pub(crate) async fn clone(cx: &Context) -> Result<Value, Failure> {
    let (arguments, config) = (cx.read::<Arguments>()?, Config::of(cx)?);
    let paths = Paths::of(&arguments, &config)?;
    let services = Services::of(cx).await?;
    let found = find(cx, &services, &paths, &arguments.template).await?;

    let template = template::read(cx, &services, &arguments.template, &found.template);
    let backings = join_all(
        paths
            .networks
            .iter()
            .zip(&found.networks)
            .map(|((name, _), network)| networks::backing(cx, &services, name, network)),
    );
    let pool = root_pool(cx, &services, &found.pool);
    let (template, (backings, pool)) = join(template, join(backings, pool)).await;
    let template = template?;
    let backings = backings.into_iter().collect::<Result<Vec<Backing>, Failure>>()?;

    let mut devices: Vec<Element> = Vec::new();
    if !backings.is_empty() {
        devices.extend(template.without_cards()?);
    }
    if let Some(gib) = arguments.disk_gib {
        devices.extend(template.grown(gib)?);
    }
    devices.extend(
        backings
            .iter()
            .enumerate()
            .map(|(nth, backing)| networks::added(nth, backing)),
    );
    let place = Place {
        folder: found.folder,
        datastore: found.datastore,
        pool: pool?,
    };
    let call = Call::new(METHOD, &found.template)
        .with(spec::parameters(cx, &arguments, &place, devices))
        .keep(["returnval"]);
    started(METHOD, &call.create(cx).await?)
}

/// The inventory paths of everything that a clone needs.
struct Paths<'a> {
    template: String,
    folder: String,
    pool: String,
    datastore: Option<String>,
    /// The networks, each with its name and its path.
    networks: Vec<(&'a str, String)>,
}

impl<'a> Paths<'a> {
    fn of(arguments: &'a Arguments, config: &'a Config) -> Result<Self, Failure> {
        let datacenter = Datacenter::of(&arguments.datacenter, config);
        let pool = config::or_default(&arguments.resource_pool, &config.resource_pool);
        let pool = pool.ok_or_else(|| {
            let message =
                "the clone has no resource pool: name one in the arguments or in the configuration of the connection";
            failure(Code::InvalidArgument, message)
        })?;
        let datastore = config::or_default(&arguments.datastore, &config.datastore);
        let datastore = datastore.map(|given| datacenter.path(Branch::Datastore, given));
        let networks = if arguments.networks.is_empty() {
            &config.networks
        } else {
            &arguments.networks
        };
        let networks = networks.iter().map(|name| {
            let path = networks::path(&datacenter, config, name)?;
            Ok((name.as_str(), path))
        });
        Ok(Paths {
            template: datacenter.path(Branch::Vm, &arguments.template)?,
            folder: folder_path(&datacenter, &arguments.folder, config)?,
            pool: datacenter.path(Branch::Host, pool)?,
            datastore: datastore.transpose()?,
            networks: networks.collect::<Result<_, Failure>>()?,
        })
    }
}

/// The path of the folder of new VMs.
pub(crate) fn folder_path(
    datacenter: &Datacenter<'_>,
    argument: &str,
    config: &Config,
) -> Result<String, Failure> {
    let folder = config::or_default(argument, &config.folder).unwrap_or("");
    datacenter.path(Branch::Vm, folder)
}

/// The objects at the paths.
struct Found {
    template: Moid,
    folder: Moid,
    pool: Moid,
    datastore: Option<Moid>,
    networks: Vec<Moid>,
}

async fn find(
    cx: &Context,
    services: &Services,
    paths: &Paths<'_>,
    template_name: &str,
) -> Result<Found, Failure> {
    let expect = |path, kinds| expect(cx, services, path, kinds, Code::InvalidArgument);
    let template = expect(&paths.template, &[VM]);
    let folder = expect(&paths.folder, &[FOLDER]);
    let pool = expect(&paths.pool, &POOLS);
    let datastores = join_all(paths.datastore.iter().map(|path| expect(path, &["Datastore"])));
    let networks = join_all(
        paths
            .networks
            .iter()
            .map(|(_, path)| expect(path, &networks::KINDS)),
    );
    let (singles, (datastores, networks)) =
        join(join_all([template, folder, pool]), join(datastores, networks)).await;
    let mut singles = singles.into_iter();
    let mut next = || {
        singles
            .next()
            .unwrap_or_else(|| Err(template::no_template(template_name)))
    };
    Ok(Found {
        template: next().map_err(|failure| as_no_template(failure, template_name))?,
        folder: next()?,
        pool: next()?,
        datastore: datastores.into_iter().next().transpose()?,
        networks: networks.into_iter().collect::<Result<_, Failure>>()?,
    })
}

fn as_no_template(failure: Failure, name: &str) -> Failure {
    match failure.code {
        Code::InvalidArgument => template::no_template(name),
        _ => failure,
    }
}

/// The resource pool itself, or the root pool of the cluster or host that was named in its place.
async fn root_pool(cx: &Context, services: &Services, pool: &Moid) -> Result<Moid, Failure> {
    if !POOLS[2..].contains(&pool.kind.as_str()) {
        return Ok(pool.clone());
    }
    let cluster = properties::read(cx, services, pool, &[ROOT_POOL]).await?;
    let found = cluster.value(&ROOT_POOL)?.and_then(Moid::read);
    found.ok_or_else(|| failure(Code::Unavailable, format!("{} has no resource pool now", pool.id)))
}
