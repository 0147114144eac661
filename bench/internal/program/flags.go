package program

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// usageError is the error of an invalid command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// parse reads a command line that has only flags.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return usageError(err.Error())
	}
	if flags.NArg() > 0 {
		return usageError(fmt.Sprintf("unexpected argument %q", flags.Arg(0)))
	}
	if html := flags.Lookup("html"); html != nil {
		return writable(html.Value.String())
	}
	return nil
}

// within returns an error unless the flag's value is from least to most.
func within[T cmp.Ordered](name string, value, least, most T) error {
	if value < least || value > most {
		return usageError(fmt.Sprintf("-%s is %v, it must be from %v to %v", name, value, least,
			most))
	}
	return nil
}

// chosen splits the value of a flag that is a list of some of these names.
func chosen(flag, names string, of []string) ([]string, error) {
	list := strings.Split(names, ",")
	for i, name := range list {
		name = strings.TrimSpace(name)
		if !slices.Contains(of, name) {
			return nil,
				usageError(fmt.Sprintf("-%s has %q, which is none of %s", flag, name,
					strings.Join(of, ", ")))
		}
		if slices.Contains(list[:i], name) {
			return nil, usageError(fmt.Sprintf("-%s has %s twice", flag, name))
		}
		list[i] = name
	}
	return list, nil
}

// newFlags returns the flag set of a command.
func newFlags(command string, stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	return flags
}

// counts splits the value of a flag that is a list of numbers. The list may be empty.
func counts(flag, list string, least, most int) (ns []int, err error) {
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, usageError(fmt.Sprintf("-%s has %q, which is no number", flag, part))
		}
		if err := within(flag, n, least, most); err != nil {
			return nil, err
		}
		if slices.Contains(ns, n) {
			return nil, usageError(fmt.Sprintf("-%s has %d twice", flag, n))
		}
		ns = append(ns, n)
	}
	return ns, nil
}
