//! A small EC2: instances with marks, filters, pages and client tokens. It answers in XML, like the real EC2.

mod answer;
mod filter;
mod form;
mod object;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use polity_driver_sdk::HttpRequest;
use polity_driver_sdk::test::Reply;

pub use answer::{error, error_without_code};
pub use form::Fields;
pub use object::{Object, named, object, small};

/// A zone of the region that is played.
pub const ZONE: &str = "eu-central-1a";
/// The only image.
pub const IMAGE: &str = "ami-0123456789abcdef0";

/// An instance.
#[derive(Clone, Debug)]
pub struct Instance {
    pub id: String,
    pub token: String,
    pub state: &'static str,
    pub zone: &'static str,
    pub dns: String,
    pub source_dest_check: &'static str,
    /// The tags. A tag without a value has no element for the value.
    pub tags: Tags,
    /// The network interfaces, if there are several.
    pub interfaces: Vec<Interface>,
}

/// Tags, some without a value.
pub type Tags = BTreeMap<String, Option<String>>;

/// A network interface of an instance.
#[derive(Clone, Debug)]
pub struct Interface {
    pub id: &'static str,
    pub index: usize,
    pub source_dest_check: bool,
    /// How many IPv6 prefixes it has.
    pub prefixes: usize,
    pub tags: Tags,
}

/// The state of the server.
pub struct Ec2 {
    pub instances: Vec<Instance>,
    /// The instances of a page.
    pub page: usize,
    /// How many instances of a page the next one shows again.
    pub overlap: usize,
    /// Whether filters are applied. A server may ignore them.
    pub filters: bool,
    /// Whether the metadata service of a new instance shows its tags unless the request says otherwise: a setting of the account.
    pub shows_tags: bool,
    /// The reply of an action in place of the usual one.
    pub instead: BTreeMap<String, Reply>,
    /// The reply of an action in place of the usual one, after the action has had its effect.
    pub afterwards: BTreeMap<String, Reply>,
    made: usize,
}

/// The server, shared by a test and the operations in it.
pub type Server = Rc<RefCell<Ec2>>;

/// A server without instances.
pub fn server() -> Server {
    Rc::new(RefCell::new(Ec2 {
        instances: Vec::new(),
        page: 1_000,
        overlap: 0,
        filters: true,
        shows_tags: false,
        instead: BTreeMap::new(),
        afterwards: BTreeMap::new(),
        made: 0,
    }))
}

impl Ec2 {
    /// Adds an instance with these tags, which the driver has not created.
    pub fn make(&mut self, tags: &[(&str, &str)]) -> &mut Instance {
        self.made += 1;
        let nth = self.made;
        let tags = tags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned())));
        self.instances.push(Instance {
            id: format!("i-{nth:017x}"),
            token: format!("token-{nth}"),
            state: "running",
            zone: ZONE,
            dns: format!("ip-10-0-0-{nth}.eu-central-1.compute.internal"),
            source_dest_check: "true",
            tags: tags.collect(),
            interfaces: Vec::new(),
        });
        self.instances.last_mut().expect("it was pushed")
    }

    /// A machine of an owner of `tenant-1`.
    pub fn machine(&mut self, owner: &str, name: &str) -> &mut Instance {
        let tags = [
            ("Name", name),
            ("polity.dev/owner", owner),
            ("polity.dev/tenant", "tenant-1"),
        ];
        self.make(&tags)
    }

    fn answer(&mut self, request: &HttpRequest) -> Reply {
        assert_eq!((&*request.method, &*request.endpoint), ("POST", "ec2"));
        assert!(
            request.path.is_empty() && request.query.is_empty(),
            "one URL: {request:?}"
        );
        let form = Fields::of(request);
        assert_eq!(form["Version"], "2016-11-15");
        let action = form["Action"].clone();
        if let Some(reply) = self.instead.get(&action) {
            return reply.clone();
        }
        let reply = match &*action {
            "RunInstances" => self.run(&form),
            "DescribeInstances" => self.describe(&form),
            "TerminateInstances" => self.terminate(&form),
            "ModifyInstanceAttribute" => self.modify(&form),
            "DescribeNetworkInterfaces" => self.interfaces(&form),
            "ModifyNetworkInterfaceAttribute" => self.modify_interface(&form),
            "AssignIpv6Addresses" => self.assign(&form),
            "DescribeImages" => self.images(&form),
            other => error(400, "InvalidAction", &format!("The action {other} is not valid")),
        };
        self.afterwards.get(&action).cloned().unwrap_or(reply)
    }

    fn run(&mut self, form: &Fields) -> Reply {
        assert_eq!((&*form["MinCount"], &*form["MaxCount"]), ("1", "1"));
        let token = &form["ClientToken"];
        let known = self.instances.iter().find(|instance| instance.token == *token);
        if let Some(known) = known {
            return answer::run(known);
        }
        // <https://github.com/aws/karpenter-provider-aws/issues/9201>
        let both = ["Ipv6AddressCount", "Ipv6PrefixCount"];
        if both
            .iter()
            .all(|field| form.get(&format!("NetworkInterface.1.{field}")).is_some())
        {
            return error(
                400,
                "InvalidParameterCombination",
                "You may specify one and only one of them",
            );
        }
        let tags = form.tags("instance");
        // <https://github.com/kubernetes-sigs/cluster-api-provider-aws/issues/4995>
        let shown = form.get("MetadataOptions.InstanceMetadataTags");
        let shows_tags = shown.map_or(self.shows_tags, |shown| shown == "enabled");
        if let Some(key) = tags.keys().find(|key| shows_tags && key.contains('/')) {
            let message = format!("'{key}' is not a valid tag key.");
            return error(400, "InvalidParameterValue", &message);
        }
        let (token, marked): (_, Vec<(&str, &str)>) =
            (token.clone(), tags.iter().map(|(k, v)| (&**k, &**v)).collect());
        let made = self.make(&marked);
        (made.token, made.state) = (token, "pending");
        answer::run(made)
    }

    fn describe(&self, form: &Fields) -> Reply {
        if let Some(id) = form.get("InstanceId.1") {
            assert!(form.get("MaxResults").is_none(), "EC2 takes no pages with ids");
            return match self.instances.iter().find(|instance| instance.id == *id) {
                Some(instance) => answer::describe(&[instance], None),
                None => error(
                    400,
                    "InvalidInstanceID.NotFound",
                    &format!("The instance ID '{id}' does not exist"),
                ),
            };
        }
        let fits = |instance: &&Instance| !self.filters || filter::fits(form, instance);
        let rows: Vec<&Instance> = self.instances.iter().filter(fits).collect();
        let most: usize = form["MaxResults"].parse().expect("a number");
        let from: usize = form
            .get("NextToken")
            .map_or(0, |token| token.parse().expect("a token of this server"));
        let until = rows.len().min(from + self.page.min(most));
        let next = (until < rows.len()).then(|| (until - self.overlap).to_string());
        answer::describe(&rows[from..until], next.as_deref())
    }

    fn terminate(&mut self, form: &Fields) -> Reply {
        match self
            .instances
            .iter_mut()
            .find(|instance| instance.id == form["InstanceId.1"])
        {
            Some(instance) => {
                instance.state = "shutting-down";
                answer::terminate(&instance.id)
            }
            None => error(400, "InvalidInstanceID.NotFound", "The instance does not exist"),
        }
    }

    fn modify(&mut self, form: &Fields) -> Reply {
        assert_eq!(form["SourceDestCheck.Value"], "false");
        let found = self
            .instances
            .iter_mut()
            .find(|instance| instance.id == form["InstanceId"]);
        let instance = found.expect("it was seen before");
        if instance.interfaces.len() > 1 {
            return error(
                400,
                "InvalidInstanceID",
                "There are multiple interfaces attached to the instance",
            );
        }
        instance.source_dest_check = "false";
        answer::done("ModifyInstanceAttribute")
    }

    fn interfaces(&self, form: &Fields) -> Reply {
        assert_eq!(form["Filter.1.Name"], "attachment.instance-id");
        let is = |instance: &&Instance| instance.id == form["Filter.1.Value.1"];
        let of = self.instances.iter().find(is).expect("it was seen before");
        answer::interfaces(&of.interfaces)
    }

    fn modify_interface(&mut self, form: &Fields) -> Reply {
        assert_eq!(form["SourceDestCheck.Value"], "false");
        let instances = self.instances.iter_mut();
        let mut all = instances.flat_map(|instance| &mut instance.interfaces);
        let found = all.find(|interface| interface.id == form["NetworkInterfaceId"]);
        found.expect("it was seen before").source_dest_check = false;
        answer::done("ModifyNetworkInterfaceAttribute")
    }

    fn assign(&mut self, form: &Fields) -> Reply {
        let instances = self.instances.iter_mut();
        let mut all = instances.flat_map(|instance| &mut instance.interfaces);
        let found = all.find(|interface| interface.id == form["NetworkInterfaceId"]);
        let found = found.expect("it was seen before");
        found.prefixes += form["Ipv6PrefixCount"].parse::<usize>().expect("a number");
        answer::assigned(found.id)
    }

    fn images(&self, form: &Fields) -> Reply {
        match &*form["ImageId.1"] {
            IMAGE => answer::image(IMAGE, "/dev/xvda"),
            other => error(
                400,
                "InvalidAMIID.NotFound",
                &format!("The image id '[{other}]' does not exist"),
            ),
        }
    }
}
