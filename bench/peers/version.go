package main

import "runtime/debug"

// of returns a module with the version that this program was built with.
func of(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return module + " of unknown version"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			if m.Replace != nil {
				m = m.Replace
			}
			return m.Path + " " + m.Version
		}
	}
	return module + " of unknown version"
}
