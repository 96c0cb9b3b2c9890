// Command vcsim is a vCenter with one cluster and one template, simulated by govmomi. The template comes from an OVA with
// properties. The program forgets everything when it ends.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8989", "the `ADDRESS` of its API")
	cert := flag.String("cert", "", "the `FILE` with its certificate; without it there is no TLS")
	key := flag.String("key", "", "the `FILE` with the key of its certificate")
	known := flag.String("known", "", "the `FILE` with the authority by whose certificates its clients are known")
	user := flag.String("user", "administrator@vsphere.local", "the `NAME` of the only user")
	password := flag.String("password", "simulated-p4ssword", "the user's `PASSWORD`")
	name := flag.String("template", "ubuntu-24.04", "the `NAME` of the template")
	takes := flag.Duration("clone", time.Second, "how long a clone takes")
	by := flag.Duration("late", 0, "how long the answer to a clone is held back while the clone goes on")
	beside := flag.String("beside", "", "the `NAME` of a VM that is there from the beginning")
	instance := flag.String("instance", "", "the `ID` of this vCenter, instead of that of all simulated ones")
	version := flag.Bool("version", false, "print the version of govmomi, and end")
	flag.Parse()
	if *version {
		fmt.Println(govmomi())
		return
	}

	// While a task waits, what it is about can be read.
	simulator.TaskDelay.MethodDelay = map[string]int{"LockHandoff": 0, "Clone": int(takes.Milliseconds())}
	model := simulator.VPX()
	model.Host, model.Machine, model.Autostart = 0, 1, false
	if *beside != "" {
		model.Machine = 2
	}
	if err := model.Create(); err != nil {
		log.Fatal(err)
	}
	defer model.Remove()

	vms := model.Map().All("VirtualMachine")
	for i, name := range []string{*name, *beside}[:len(vms)] {
		vm := vms[i].(*simulator.VirtualMachine)
		vm.Name, vm.Config.Name, vm.Summary.Config.Name = name, name, name
	}
	vm := vms[0].(*simulator.VirtualMachine)
	vm.Config.VAppConfig = appliance()
	if fault := vm.MarkAsTemplate(&types.MarkAsTemplate{This: vm.Self}).Fault(); fault != nil {
		log.Fatal(fault.String)
	}
	model.Map().Put(&template{VirtualMachine: vm})
	model.Map().AddHandler(new(guests))

	if *instance != "" {
		model.ServiceContent.About.InstanceUuid = *instance
	}
	model.Service.Listen = &url.URL{Host: *listen, User: url.UserPassword(*user, *password)}
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil {
			log.Fatal(err)
		}
		model.Service.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		if *known != "" {
			authority, err := os.ReadFile(*known)
			if err != nil {
				log.Fatal(err)
			}
			strict := model.Service.TLS.Clone()
			strict.ClientAuth, strict.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
			strict.ClientCAs.AppendCertsFromPEM(authority)
			// The simulator itself sets how strict it is, in the configuration that it was given.
			model.Service.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return strict, nil }
		}
	}
	server := model.Service.NewServer()
	defer server.Close()
	server.Config.Handler = late(server.Config.Handler, *by)
	fmt.Printf("%s://%s\n", server.URL.Scheme, server.URL.Host)

	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, os.Interrupt)
	<-ended
}

func govmomi() string {
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, module := range built.Deps {
			if module.Path == "github.com/vmware/govmomi" {
				return module.Version
			}
		}
	}
	return "unknown"
}
