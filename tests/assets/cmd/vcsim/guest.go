package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// transport is how a vCenter gives the OVF properties of a VM to its guest: as guestinfo.ovfEnv.
const transport = "com.vmware.guestInfo"

// appliance is what a vCenter makes of an OVA with properties: those that cloud-init's DataSourceOVF reads. None has a value,
// as where the one who imported the OVA gave none.
func appliance() *types.VmConfigInfo {
	info := &types.VmConfigInfo{OvfEnvironmentTransport: []string{transport}}
	for i, id := range []string{"instance-id", "hostname", "user-data"} {
		info.Property = append(info.Property, types.VAppPropertyInfo{Key: int32(i), Id: id, Type: "string"})
	}
	return info
}

// guests stands for the guest of each VM, which sets up its network when its VM is turned on for the first time.
type guests struct {
	leases atomic.Uint32
}

// metadata is the part of guestinfo.metadata that says which interface gets which addresses.
type metadata struct {
	Network struct {
		Ethernets map[string]struct {
			Match     struct{ MACAddress string }
			DHCP4     bool
			Addresses []string
		}
	}
}

// UpdateObject is called after each change of an object.
func (g *guests) UpdateObject(ctx *simulator.Context, object mo.Reference, changes []types.PropertyChange) {
	vm, ok := object.(*mo.VirtualMachine)
	turned := slices.ContainsFunc(changes, func(change types.PropertyChange) bool { return change.Name == "runtime.powerState" })
	if !ok || !turned || vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		return
	}
	nics := slices.Clone(vm.Guest.Net)
	for i := range nics {
		if len(nics[i].IpAddress) == 0 {
			nics[i].IpAddress = g.addresses(vm, nics[i].MacAddress)
		}
	}
	ctx.Update(vm, []types.PropertyChange{{Name: "guest.net", Val: nics}})
}

// addresses are those that the guest gives to an interface.
//
// A guest with OVF properties reads nothing else: cloud-init takes the first source that is there, and lists OVF before VMware
// (DI_DSLIST_DEFAULT of tools/ds-identify, transport_vmware_guestinfo of cloudinit/sources/DataSourceOVF.py). There it would
// then ask for a lease on its first interface; here it has no address at all, so that whoever waits for one sees it.
func (g *guests) addresses(vm *mo.VirtualMachine, mac string) []string {
	if app := vm.Config.VAppConfig; app != nil && slices.Contains(app.GetVmConfigInfo().OvfEnvironmentTransport, transport) {
		return nil
	}
	var addresses []string
	for _, card := range read(vm).Network.Ethernets {
		if !strings.EqualFold(card.Match.MACAddress, mac) {
			continue
		}
		for _, address := range card.Addresses {
			ip, _, _ := strings.Cut(address, "/")
			addresses = append(addresses, ip)
		}
		if card.DHCP4 {
			n := g.leases.Add(1)
			addresses = append(addresses, fmt.Sprintf("10.0.%d.%d", n/250, n%250+1))
		}
	}
	return addresses
}

// read is the metadata of a VM; empty where it has none.
func read(vm *mo.VirtualMachine) (found metadata) {
	for _, option := range vm.Config.ExtraConfig {
		value := option.GetOptionValue()
		if value.Key != "guestinfo.metadata" {
			continue
		}
		text, err := base64.StdEncoding.DecodeString(fmt.Sprint(value.Value))
		if err == nil {
			err = json.Unmarshal(text, &found)
		}
		if err != nil {
			log.Printf("the metadata of %s: %v", vm.Name, err)
		}
	}
	return found
}

// Reference, PutObject and RemoveObject make guests a listener of the inventory.
func (*guests) Reference() types.ManagedObjectReference {
	return types.ManagedObjectReference{Type: "Guests", Value: "guests"}
}

func (*guests) PutObject(*simulator.Context, mo.Reference) {}

func (*guests) RemoveObject(*simulator.Context, types.ManagedObjectReference) {}
