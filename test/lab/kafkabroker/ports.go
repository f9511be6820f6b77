package kafkabroker

import "github.com/kuberelay/kuberelay/test/lab/childprocess"

// holdPorts holds a port for each listener.
func holdPorts(listeners []Listener) (map[Listener]childprocess.Port, error) {
	ports := map[Listener]childprocess.Port{}
	for _, l := range listeners {
		p, err := childprocess.HoldPort(childprocess.ReuseAddr) // Java can't set SO_REUSEPORT
		if err != nil {
			releasePorts(ports)
			return nil, err
		}
		ports[l] = p
	}
	return ports, nil
}

func releasePorts(ports map[Listener]childprocess.Port) {
	for _, p := range ports {
		p.Release()
	}
}
