package main

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// template clones as a vCenter does. Of a clone's configuration the simulator takes nothing but the devices: UUID, processors,
// memory, flags and options stay those of the template. And it gives no clone the OVF properties of its template.
type template struct {
	*simulator.VirtualMachine
}

// CloneVMTask lets the simulator clone, and gives the VM then what was asked for. Until then it stands in its folder without
// options, as on a vCenter.
func (t *template) CloneVMTask(ctx *simulator.Context, request *types.CloneVM_Task) soap.HasFault {
	clone := func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		begun := t.VirtualMachine.CloneVMTask(ctx, request).(*methods.CloneVM_TaskBody)
		made, fault := ended(ctx, begun.Res.Returnval)
		if fault != nil {
			return nil, fault
		}
		vm := made.(types.ManagedObjectReference)
		clone, rest := ctx.Map.Get(vm).(*simulator.VirtualMachine), rest(request)
		if removed := rest.VAppConfigRemoved; removed == nil || !*removed {
			ctx.WithLock(clone, func() { clone.Config.VAppConfig = t.Config.VAppConfig })
		}
		changed := clone.ReconfigVMTask(ctx, &types.ReconfigVM_Task{This: vm, Spec: rest})
		if _, fault := ended(ctx, changed.(*methods.ReconfigVM_TaskBody).Res.Returnval); fault != nil {
			return nil, fault
		}
		return vm, nil
	}
	task := simulator.CreateTask(t.VirtualMachine, "clone", clone)
	task.Info.ActivationId = ctx.Header.ID
	return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: task.Run(ctx)}}
}

// rest is what the simulator leaves out of a clone.
func rest(request *types.CloneVM_Task) types.VirtualMachineConfigSpec {
	var rest types.VirtualMachineConfigSpec
	if request.Spec.Config != nil {
		rest = *request.Spec.Config
	}
	rest.DeviceChange = nil
	return rest
}

// ended waits for a task, and gives what came of it.
func ended(ctx *simulator.Context, task types.ManagedObjectReference) (types.AnyType, types.BaseMethodFault) {
	inner := ctx.Map.Get(task).(*simulator.Task)
	inner.Wait()
	if inner.Info.Error != nil {
		return nil, inner.Info.Error.Fault
	}
	return inner.Info.Result, nil
}
