package apistream

import (
	"errors"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kuberelay/kuberelay/internal/jsonscan"
)

// List is a list, or one page of it.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

var (
	_ runtime.Object       = (*List)(nil)
	_ metav1.ListInterface = (*List)(nil)
)

// DeepCopyObject implements [runtime.Object].
func (l *List) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]runtime.Object, len(l.Items))
	for i, o := range l.Items {
		c.Items[i] = o.DeepCopyObject()
	}
	return &c
}

// readList reads a list:
//
//	{"kind":"PodList","apiVersion":"v1","metadata":{...},"items":[{...},...]}
//
// Apart from the buffer, it holds the text of at most one item in memory.
func readList(r io.Reader, decode Decode) (*List, error) {
	list, in := &List{}, &values{window{r: r, max: maxObject}}
	defer in.giveBack()
	if err := in.object(func(name string) error {
		switch name {
		case "metadata":
			return in.unmarshal(&list.ListMeta)
		case "items":
			return in.array(func() error {
				var o runtime.Object
				err := in.value(func(s *jsonscan.Scanner) (err error) {
					o, err = decode(s)
					return err
				})
				list.Items = append(list.Items, o)
				return err
			})
		}
		return in.value(func(s *jsonscan.Scanner) error { s.Skip(); return s.Err() })
	}); err != nil {
		return nil, err
	}
	if list.ResourceVersion == "" {
		return nil, errors.New("the response is not a list: it has no resourceVersion")
	}
	return list, in.end()
}

// values reads JSON values from a stream.
type values struct{ window }

// peek returns the next byte that is not white space. At the end of the stream, it returns
// errCutOff.
func (v *values) peek() (byte, error) {
	for {
		for ; v.from < v.to; v.from++ {
			switch c := v.b[v.from]; c {
			case ' ', '\n', '\r', '\t':
			default:
				return c, nil
			}
		}
		if err := v.more(); err != nil {
			return 0, err
		}
	}
}

func (v *values) more() error {
	err := v.fill()
	if errors.Is(err, io.EOF) {
		return errCutOff
	}
	return err
}

// end returns an error if anything but white space is left.
func (v *values) end() error {
	switch _, err := v.peek(); {
	case errors.Is(err, errCutOff):
		return nil
	case err != nil:
		return err
	}
	return jsonscan.ErrSyntax
}

// take consumes the next byte if it equals c, and reports whether it did.
func (v *values) take(c byte) (bool, error) {
	next, err := v.peek()
	if err != nil || next != c {
		return false, err
	}
	v.use(1)
	return true, nil
}

func (v *values) expect(c byte) error {
	ok, err := v.take(c)
	if err == nil && !ok {
		err = jsonscan.ErrSyntax
	}
	return err
}

// value calls consume with the next value. If the value was incomplete, it calls consume again with
// at least twice as much of the stream, or with the rest of the stream. consume scans the value
// from its beginning each time. Doubling limits the total to at most three scans of a value that
// arrives in many small reads.
func (v *values) value(consume func(*jsonscan.Scanner) error) error {
	if _, err := v.peek(); err != nil {
		return err
	}
	var end error // of the stream
	for {
		size := v.to - v.from
		s := jsonscan.New(v.b[v.from:v.to])
		err := consume(&s)
		switch n := s.Position(); {
		case s.Err() == nil && err != nil:
			return err // valid JSON that the caller rejects
		case err == nil && s.Err() == nil && (n < size || v.b[v.from] == '{'): // a number at the end of the window can continue
			v.use(n)
			return nil
		case end != nil:
			return end
		}
		for end == nil && v.to-v.from < 2*size {
			end = v.more()
		}
		if v.to-v.from == size {
			return end
		}
	}
}

func (v *values) unmarshal(into any) error {
	return v.value(func(s *jsonscan.Scanner) error { return unmarshal(s, into) })
}

// object reads an object. It calls member with the name of each member. member must read the value
// of that member.
func (v *values) object(member func(name string) error) error {
	if err := v.expect('{'); err != nil {
		return err
	}
	return v.each('}', func() error {
		var name string
		err := v.value(func(s *jsonscan.Scanner) error { name = string(s.Text()); return s.Err() })
		if err == nil {
			err = v.expect(':')
		}
		if err == nil {
			err = member(name)
		}
		return err
	})
}

// array reads an array. It calls item once for each item, and item must read that item. null counts
// as an empty array.
func (v *values) array(item func() error) error {
	c, err := v.peek()
	if err != nil {
		return err
	}
	if c == 'n' {
		return v.value(func(s *jsonscan.Scanner) error {
			if !s.Null() {
				s.Fail()
			}
			return s.Err()
		})
	}
	if err := v.expect('['); err != nil {
		return err
	}
	return v.each(']', item)
}

// each calls next for each element until the closing bracket, and reads the commas between them.
func (v *values) each(bracket byte, next func() error) error {
	if closed, err := v.take(bracket); closed || err != nil {
		return err
	}
	for {
		if err := next(); err != nil {
			return err
		}
		if more, err := v.take(','); err != nil {
			return err
		} else if !more {
			return v.expect(bracket)
		}
	}
}
