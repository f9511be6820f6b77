package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxPaths is how many places are named where data differ.
const maxPaths = 5

// differences names the places where two values differ, never what is there.
func differences(cluster, bus any) string {
	var paths []string
	compareTrees("", cluster, bus, &paths)
	more := ""
	if len(paths) > maxPaths {
		paths, more = paths[:maxPaths], " and more"
	}
	return strings.Join(paths, ", ") + more
}

// compareTrees stops when there is more than can be shown.
func compareTrees(path string, a, b any, paths *[]string) {
	if len(*paths) > maxPaths || digestOf(a) == digestOf(b) {
		return
	}
	switch a := a.(type) {
	case tree:
		if b, ok := b.(tree); ok {
			names := maps.Clone(a)
			maps.Copy(names, b)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				x, inA := a[name]
				y, inB := b[name]
				where := joinPath(path, name)
				switch {
				case !inB:
					*paths = append(*paths, where+" (not on the bus)")
				case !inA:
					*paths = append(*paths, where+" (only on the bus)")
				default:
					compareTrees(where, x, y, paths)
				}
			}
			return
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				compareTrees(fmt.Sprintf("%s[%d]", path, i), a[i], b[i], paths)
			}
			return
		}
	case json.Number, string, bool, nil:
	}
	*paths = append(*paths, path)
}

func joinPath(path, name string) string {
	if !isPlain(name) || strings.ContainsAny(name, ".[") {
		return path + "[" + strconv.Quote(name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
