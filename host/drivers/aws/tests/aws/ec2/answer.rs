//! Answers of EC2, in its XML.

use polity_driver_sdk::test::Reply;

use super::{Instance, Interface, Tags};

const SPACE: &str = "xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"";
const ID: &str = "59dbff89-35bd-4eac-99ed-be587EXAMPLE";

/// A refusal.
pub fn error(status: u16, code: &str, message: &str) -> Reply {
    failed(
        status,
        &format!(
            "<Error><Code>{}</Code><Message>{}</Message></Error>",
            text(code),
            text(message)
        ),
    )
}

/// A refusal without a code or a message.
pub fn error_without_code(status: u16) -> Reply {
    failed(status, "")
}

fn failed(status: u16, errors: &str) -> Reply {
    let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
    let body = format!("{head}\n<Response><Errors>{errors}</Errors><RequestID>{ID}</RequestID></Response>");
    Reply::new(status, body)
}

/// A page of reservations, each of one instance.
pub fn describe(rows: &[&Instance], next: Option<&str>) -> Reply {
    let rows: String = rows
        .iter()
        .map(|row| {
            format!(
                "<item><reservationId>r-1</reservationId><ownerId>111122223333</ownerId>{}</item>",
                set(row)
            )
        })
        .collect();
    let next = next
        .map(|next| format!("<nextToken>{next}</nextToken>"))
        .unwrap_or_default();
    success(
        "DescribeInstances",
        &format!("<reservationSet>{rows}</reservationSet>{next}"),
    )
}

pub fn run(made: &Instance) -> Reply {
    success(
        "RunInstances",
        &format!("<reservationId>r-1</reservationId><groupSet/>{}", set(made)),
    )
}

pub fn terminate(id: &str) -> Reply {
    let state = |name: &str, code: u8| format!("<{name}><code>{code}</code><name>x</name></{name}>");
    let states = format!("{}{}", state("currentState", 32), state("previousState", 16));
    success(
        "TerminateInstances",
        &format!("<instancesSet><item><instanceId>{id}</instanceId>{states}</item></instancesSet>"),
    )
}

pub fn done(action: &str) -> Reply {
    success(action, "<return>true</return>")
}

pub fn assigned(interface: &str) -> Reply {
    let inside = format!("<networkInterfaceId>{interface}</networkInterfaceId>");
    success("AssignIpv6Addresses", &inside)
}

pub fn image(id: &str, root: &str) -> Reply {
    let image = format!(
        "<imageId>{id}</imageId><imageState>available</imageState><rootDeviceType>ebs</rootDeviceType><rootDeviceName>{root}</rootDeviceName>"
    );
    success(
        "DescribeImages",
        &format!("<imagesSet><item>{image}</item></imagesSet>"),
    )
}

fn success(action: &str, inside: &str) -> Reply {
    let body = format!("<{action}Response {SPACE}><requestId>{ID}</requestId>{inside}</{action}Response>");
    Reply::new(200, format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}"))
        .header("content-type", "text/xml;charset=UTF-8")
}

/// The network interfaces of an instance.
pub fn interfaces(of: &[Interface]) -> Reply {
    let row = |of: &Interface| {
        let Interface {
            id,
            index,
            source_dest_check,
            ..
        } = of;
        format!(
            "<item><networkInterfaceId>{id}</networkInterfaceId><sourceDestCheck>{source_dest_check}</sourceDestCheck>\
             <attachment><deviceIndex>{index}</deviceIndex></attachment>{}{}</item>",
            prefixes(of.prefixes),
            tags(&of.tags)
        )
    };
    let rows: String = of.iter().map(row).collect();
    success(
        "DescribeNetworkInterfaces",
        &format!("<networkInterfaceSet>{rows}</networkInterfaceSet>"),
    )
}

fn prefixes(count: usize) -> String {
    let prefix = |nth| format!("<item><ipv6Prefix>2001:db8:{nth}::/80</ipv6Prefix></item>");
    let all: String = (0..count).map(prefix).collect();
    format!("<ipv6PrefixSet>{all}</ipv6PrefixSet>")
}

fn tags(of: &Tags) -> String {
    let tag = |(key, value): (&String, &Option<String>)| {
        let value = value
            .as_ref()
            .map(|value| format!("<value>{}</value>", text(value)))
            .unwrap_or_default();
        format!("<item><key>{}</key>{value}</item>", text(key))
    };
    format!("<tagSet>{}</tagSet>", of.iter().map(tag).collect::<String>())
}

fn set(of: &Instance) -> String {
    let Instance {
        id,
        token,
        state,
        zone,
        dns,
        source_dest_check,
        ..
    } = of;
    let tags = tags(&of.tags);
    let interface = |nth: usize| {
        let known = of.interfaces.get(nth);
        let index = known.map_or(0, |interface| interface.index);
        let prefixes = prefixes(known.map_or(0, |interface| interface.prefixes));
        format!(
            "<item><networkInterfaceId>eni-{nth}</networkInterfaceId><sourceDestCheck>true</sourceDestCheck>\
             <attachment><deviceIndex>{index}</deviceIndex></attachment>{prefixes}</item>"
        )
    };
    let interfaces: String = (0..of.interfaces.len().max(1)).map(interface).collect();
    format!(
        "<instancesSet>\n  <item>\n    <instanceId>{id}</instanceId><imageId>ami-1</imageId>\
         <instanceState><code>16</code><name>{state}</name></instanceState><privateDnsName>{dns}</privateDnsName>\
         <dnsName/><reason/><keyName>k</keyName><clientToken>{}</clientToken>\
         <placement><availabilityZone>{zone}</availabilityZone><groupName/><tenancy>default</tenancy></placement>\
         <sourceDestCheck>{source_dest_check}</sourceDestCheck>\
         <networkInterfaceSet>{interfaces}</networkInterfaceSet>\
         {tags}\n  </item>\n</instancesSet>",
        text(token),
    )
}

fn text(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
