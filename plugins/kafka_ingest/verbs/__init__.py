"""What an operator asks for, in a shell or by a form: each command decides, acts, and answers.

The answer is a document, as ``--json`` prints it, and lines for people.
"""
