"""What an operator asks for, in a shell or by a form: a module for each verb, with its request, its effect, its answer.

The options of the command line and the fields of the form are made from the requests.
"""
