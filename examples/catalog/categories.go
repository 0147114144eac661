package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/cacheguard/cacheguard/cacheguard"
)

const (
	mostName   = 100  // characters of a category's name
	mostRename = 4096 // bytes of a request that renames

	// bodyTimeout is how long a client may take to send them: less than the requests that a shop
	// which stops waits for.
	bodyTimeout = 4 * time.Second
)

func (s *shop) getCategory(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	c, err := s.category(r.Context(), id)
	if err != nil {
		s.fail(w, r, fmt.Sprintf("category %d", id), err)
		return
	}
	writeJSON(w, http.StatusOK, c)
}

// pathID is the id in a request's path. What can't be one is answered here, without a look at cache
// and database.
func pathID(w http.ResponseWriter, r *http.Request) (id int, ok bool) {
	text := chi.URLParam(r, "id")
	id, err := strconv.Atoi(text)
	if err != nil || id < 1 || id > math.MaxInt32 || strconv.Itoa(id) != text { // "007" would be another URL for the same
		refuse(w, http.StatusNotFound, fmt.Sprintf("there is no category %.40q: ids are numbers from 1", text))
		return 0, false
	}
	return id, true
}

// renaming is the body of a request that renames.
type renaming struct {
	Name string `json:"name"`
}

// renameCategory answers when the old name is forgotten everywhere. After 202 it is renamed, and
// replicas may use the old name until they can be told, which the outbox sees to.
func (s *shop) renameCategory(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	// net/http takes the deadline back when the request is read to its end.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // what is no connection needs none
	name, err := readName(http.MaxBytesReader(w, r.Body, mostRename))
	if err != nil {
		status := http.StatusBadRequest
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			status = http.StatusRequestTimeout
		}
		refuse(w, status, err.Error())
		return
	}
	switch err, untold := s.rename(r.Context(), id, name), new(untoldError); {
	case err == nil:
		writeJSON(w, http.StatusOK, renamed{id, name})
	case errors.Is(err, cacheguard.ErrNotFound):
		refuse(w, http.StatusNotFound, fmt.Sprintf("category %d does not exist", id))
	case errors.Is(err, errTaken):
		refuse(w, http.StatusConflict, fmt.Sprintf("category %d can't be %q: %v", id, name, errTaken))
	case errors.As(err, &untold):
		s.log.Warn("a category was renamed, but caches could not be told yet", "id", id, "error", err)
		writeJSON(w, http.StatusAccepted, renamed{id, name})
	default:
		s.fail(w, r, fmt.Sprintf("category %d", id), err)
	}
}

// renamed is the answer to a request that has renamed.
type renamed struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

// readName reads the body of a request that renames.
func readName(body io.Reader) (string, error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	var to renaming
	if err := decoder.Decode(&to); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) { // which speaks of Go's types
			err = fmt.Errorf("got: %s", wrong.Value)
			if wrong.Field != "" {
				err = fmt.Errorf("%s is of the kind %s", wrong.Field, wrong.Value)
			}
		}
		return "", fmt.Errorf(`want {"name": "the new one"}: %w`, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return "", errors.Join(errors.New(`want one {"name": "the new one"}, and nothing after it`), err)
	}
	name := strings.TrimSpace(to.Name)
	switch {
	case name == "":
		return "", errors.New("the name is empty")
	case utf8.RuneCountInString(name) > mostName:
		return "", fmt.Errorf("the name has %d characters: want %d at most", utf8.RuneCountInString(name), mostName)
	case strings.ContainsRune(name, utf8.RuneError): // encoding/json has it in the place of what is no UTF-8
		return "", errors.New("the name is not UTF-8, or has U+FFFD in it")
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", fmt.Errorf("the name %q has characters that can't be printed", name)
	}
	return name, nil
}
