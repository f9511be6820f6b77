package controlplane

// Dir returns the control plane's directory.
func (cp *ControlPlane) Dir() string { return cp.dir }

// Pids returns the process ids of the components and of the process group's holder.
func (cp *ControlPlane) Pids() []int {
	pids := []int{cp.group.ID()}
	for _, p := range cp.processes() {
		pids = append(pids, p.PID())
	}
	return pids
}

// PinnedVersion returns the Kubernetes version that hack/controlplane builds.
func PinnedVersion() (string, error) {
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	version, _, _, err := kubernetesVersion(source)
	return version, err
}
